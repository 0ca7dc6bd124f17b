//! Every record of the format in one list, for tools and tests that treat all of them alike.

use crate::record::{ByteOrder, FieldInfo, Record};

/// Description of a record, known without its type.
#[derive(Clone, Copy, Debug)]
pub struct RecordInfo {
    /// The Rust type.
    pub name: &'static str,
    /// The standard's name.
    pub standard: &'static str,
    /// Bytes on disk.
    pub bytes: usize,
    /// The fields in order of offset.
    pub fields: &'static [FieldInfo],
    /// Decodes (exactly [`RecordInfo::bytes`]) and shows the record.
    pub show: fn(&[u8], ByteOrder) -> String,
    /// Decodes in one byte order and encodes in another.
    pub convert: fn(&[u8], ByteOrder, ByteOrder) -> Vec<u8>,
}

fn show<T: Record>(bytes: &[u8], order: ByteOrder) -> String {
    format!("{:?}", T::get(bytes, order))
}
fn convert<T: Record>(bytes: &[u8], from: ByteOrder, to: ByteOrder) -> Vec<u8> {
    let mut out = vec![0; T::BYTES];
    T::get(bytes, from).put(&mut out, to);
    out
}

macro_rules! catalog {
    ($($path:path, $name:literal;)*) => {
        /// Every record.
        pub const RECORDS: &[RecordInfo] = &[$(RecordInfo {
            name: $name,
            standard: <$path as Record>::NAME,
            bytes: <$path as crate::record::Field>::BYTES,
            fields: <$path as Record>::FIELDS,
            show: show::<$path>,
            convert: convert::<$path>,
        }),*];
    };
}
catalog! {
    crate::ddt::DdtKey, "DdtKey";
    crate::ddt::DdtPhysTrad, "DdtPhysTrad";
    crate::ddt::DdtTradEntry, "DdtTradEntry";
    crate::ddt::DdtFlatEntry, "DdtFlatEntry";
    crate::ddt::DdtStat, "DdtStat";
    crate::ddt::DdtLogHeader, "DdtLogHeader";
    crate::ddt::DdtLogRecord, "DdtLogRecord";
    crate::ddt::BrtVdevPhys, "BrtVdevPhys";
    crate::dnode::DnodeCore, "DnodeCore";
    crate::dsl::DslDirPhys, "DslDirPhys";
    crate::dsl::DslDatasetPhys, "DslDatasetPhys";
    crate::dsl::DeadlistPhys, "DeadlistPhys";
    crate::dsl::BpobjPhys, "BpobjPhys";
    crate::dsl::DdtBookmark, "DdtBookmark";
    crate::dsl::BookmarkPhys, "BookmarkPhys";
    crate::dsl::DslScanPhys, "DslScanPhys";
    crate::dsl::ErrorScrubPhys, "ErrorScrubPhys";
    crate::dsl::DslBookmarkPhys, "DslBookmarkPhys";
    crate::dsl::RedactionListPhys, "RedactionListPhys";
    crate::dsl::RedactBlockPhys, "RedactBlockPhys";
    crate::label::ZioEck, "ZioEck";
    crate::label::GangHeader, "GangHeader";
    crate::label::BootBlock, "BootBlock";
    crate::objset::ObjsetCore, "ObjsetCore";
    crate::pool_objects::SpaHistoryPhys, "SpaHistoryPhys";
    crate::pool_objects::BptreePhys, "BptreePhys";
    crate::pool_objects::BptreeEntry, "BptreeEntry";
    crate::pool_objects::IndirectMappingPhys, "IndirectMappingPhys";
    crate::pool_objects::IndirectMappingEntry, "IndirectMappingEntry";
    crate::pool_objects::IndirectBirthPhys, "IndirectBirthPhys";
    crate::pool_objects::IndirectBirthEntry, "IndirectBirthEntry";
    crate::pool_objects::RemovingPhys, "RemovingPhys";
    crate::pool_objects::CondensingPhys, "CondensingPhys";
    crate::pool_objects::RebuildPhys, "RebuildPhys";
    crate::pool_objects::UnflushedPhys, "UnflushedPhys";
    crate::l2arc::L2arcLogPtr, "L2arcLogPtr";
    crate::l2arc::L2arcHeader, "L2arcHeader";
    crate::l2arc::L2arcLogEntry, "L2arcLogEntry";
    crate::l2arc::L2arcLogHead, "L2arcLogHead";
    crate::sa::SaHeader, "SaHeader";
    crate::sa::ZnodePhys, "ZnodePhys";
    crate::sa::ZfsAclPhys, "ZfsAclPhys";
    crate::sa::AceHeader, "AceHeader";
    crate::sa::AcePhys, "AcePhys";
    crate::sa::OldAce, "OldAce";
    crate::space_map::SpaceMapPhys, "SpaceMapPhys";
    crate::uberblock::Uberblock, "Uberblock";
    crate::zap::MzapHeader, "MzapHeader";
    crate::zap::MzapEntry, "MzapEntry";
    crate::zap::ZapTable, "ZapTable";
    crate::zap::ZapHeader, "ZapHeader";
    crate::zap::LeafHeader, "LeafHeader";
    crate::zap::LeafEntry, "LeafEntry";
    crate::zap::LeafArray, "LeafArray";
    crate::zil::ZilHeader, "ZilHeader";
    crate::zil::ZilChain, "ZilChain";
    crate::zil::LrCommon, "LrCommon";
    crate::zil::LrCreate, "LrCreate";
    crate::zil::LrAclCreate, "LrAclCreate";
    crate::zil::LrRemove, "LrRemove";
    crate::zil::LrLink, "LrLink";
    crate::zil::LrRename, "LrRename";
    crate::zil::LrRenameWhiteout, "LrRenameWhiteout";
    crate::zil::LrWrite, "LrWrite";
    crate::zil::LrTruncate, "LrTruncate";
    crate::zil::LrSetattr, "LrSetattr";
    crate::zil::LrSetSaXattr, "LrSetSaXattr";
    crate::zil::LrAclV0, "LrAclV0";
    crate::zil::LrAcl, "LrAcl";
    crate::zil::LrCloneRange, "LrCloneRange";
    crate::zil::LrAttr, "LrAttr";
    crate::zil::LrAttrEnd, "LrAttrEnd";
}
