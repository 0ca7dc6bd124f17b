//! Gang blocks that are about to be written: placing the pieces of a block, and putting new ones where the old were.

use crate::gang::{GangTree, MEMBERS};
use crate::store::{COPIES_MAX, Placement, Store, hint};
use crate::verify::{GANG_HEADER_BYTES, sectors};
use crate::view::{Facts, PoolView};
use crate::{ErrorKind, WriteRequest};
use abd::{Abd, AbdPart};
use kernels::checksum::{Verifier, embed};
use metaslab::{AllocRequest, Preference};
use ondisk::names::spa_version;
use ondisk::{BlockPtr, Checksum, Compression, Dva, ObjectType, SECTOR_BYTES, Txg};

/// Builds headers and pieces of a gang that is about to be written.
struct Builder<'a> {
    view: &'a PoolView,
    request: &'a WriteRequest,
    /// Vdevs that the block prefers, and all that it is made of.
    preference: Preference,
    stores: Vec<Store>,
    allocated: Vec<Dva>,
}

impl Builder<'_> {
    fn alloc(&mut self, psize: usize, copies: u8) -> Result<[Dva; 3], ErrorKind> {
        let request = self.request;
        let wanted = AllocRequest { psize: psize as u64, copies, txg: request.txg, hint: hint(&request.bookmark) };
        let dvas = self.view.allocator.alloc_preferring(self.preference, &wanted).map_err(|_| ErrorKind::NoSpace)?;
        self.allocated.extend(dvas.iter().filter(|dva| !dva.is_empty()));
        Ok(dvas)
    }

    /// Places `data` in one piece or as a gang; gives the addresses for its pointer.
    fn place(&mut self, data: &Abd, at_once: bool) -> Result<[Dva; 3], ErrorKind> {
        let copies = self.request.copies;
        if at_once && let Ok(dvas) = self.alloc(data.len(), copies) {
            self.stores.push(Store { data: data.clone(), dvas });
            return Ok(dvas);
        }
        if data.len() <= SECTOR_BYTES {
            return Err(ErrorKind::NoSpace);
        }
        // One more copy of a header than of data: losing it would lose track of the members.
        let most = if self.view.facts.is_before(spa_version::DITTO_BLOCKS) { 1 } else { COPIES_MAX };
        let wanted = if copies == 1 { 2 } else { copies };
        let mut dvas = self.alloc(GANG_HEADER_BYTES, wanted.min(most))?;
        let place = dvas;
        let mut members = [BlockPtr::HOLE; MEMBERS];
        let mut position = 0;
        for (index, member) in members.iter_mut().enumerate() {
            if position == data.len() {
                break;
            }
            let length = sectors((data.len() - position) / (MEMBERS - index));
            let piece = data.slice(position..position + length);
            position += length;
            let at = self.place(&piece, true)?;
            *member = self.member(&piece, at)?;
            for (total, part) in dvas.iter_mut().zip(at) {
                total.asize += part.asize;
            }
        }
        self.stores.push(Store { data: header(&members, &place[0], self.request.txg)?, dvas: place });
        for dva in dvas.iter_mut().filter(|dva| !dva.is_empty()) {
            dva.gang = true;
        }
        Ok(dvas)
    }

    /// The pointer of a piece (OpenZFS: the `zio_prop_t` in `zio_write_gang_block`).
    fn member(&self, piece: &Abd, dvas: [Dva; 3]) -> Result<BlockPtr, ErrorKind> {
        let request = self.request;
        let mut bp = BlockPtr::HOLE;
        for (index, dva) in dvas.into_iter().enumerate() {
            bp.set_dva(index, dva);
        }
        bp.set_lsize(piece.len());
        bp.set_psize(piece.len());
        bp.set_compression(Compression::OFF);
        bp.set_checksum_kind(request.checksum);
        bp.set_object_type(ObjectType::NONE);
        bp.set_little_endian(true);
        bp.set_birth(request.txg, request.txg);
        bp.set_checksum(self.view.facts.sum_of(request.checksum, piece)?);
        Ok(bp)
    }
}

/// The bytes of a header at `dva`.
fn header(members: &[BlockPtr; MEMBERS], dva: &Dva, txg: Txg) -> Result<Abd, ErrorKind> {
    let mut bytes = AbdPart::scratch(GANG_HEADER_BYTES);
    bytes.fill(0);
    for (raw, member) in bytes.chunks_exact_mut(BlockPtr::BYTES).zip(members) {
        raw.copy_from_slice(&member.encode());
    }
    embed(Checksum::GANG_HEADER, &mut bytes, Verifier::gang_header(*dva, txg)).map_err(|_| ErrorKind::Unsupported)?;
    Ok(bytes.freeze())
}

/// Places a block that no free segment can hold in one piece. Its pieces may lie wherever it may itself: where all vdevs for its kind are fragmented and the
/// others full, there is still room for it (OpenZFS looks for pieces among the others alone).
pub(crate) fn place(view: &PoolView, request: &WriteRequest, preference: Preference, data: &Abd) -> Result<Placement, ErrorKind> {
    let mut builder = Builder { view, request, preference, stores: Vec::new(), allocated: Vec::new() };
    match builder.place(data, false) {
        Ok(dvas) => Ok(Placement { dvas, stores: builder.stores, allocated: builder.allocated }),
        Err(kind) => {
            for dva in &builder.allocated {
                view.allocator.unalloc(request.txg, dva);
            }
            Err(kind)
        }
    }
}

/// The stores that put `data` into the existing gang `tree` of the syncing txg: same addresses, new pieces, new sums in the headers.
pub(crate) fn overlay(facts: &Facts, request: &WriteRequest, data: &Abd, tree: &GangTree) -> Result<Vec<Store>, ErrorKind> {
    let mut stores = Vec::with_capacity(tree.nodes.len());
    let mut pointers: Vec<BlockPtr> = tree.nodes.iter().map(|node| node.bp).collect();
    let mut places = vec![0..0; pointers.len()];
    places[0] = 0..data.len();
    for (index, node) in tree.nodes.iter().enumerate() {
        let mut position = places[index].start;
        for member in node.members.clone() {
            places[member] = position..position + tree.nodes[member].bp.psize();
            position = places[member].end;
        }
    }
    // Members come after their header in the list, so from the back every header sees its members' new sums.
    for (index, node) in tree.nodes.iter().enumerate().rev() {
        let piece = data.slice(places[index].clone());
        let dvas = node.bp.addresses();
        pointers[index].set_checksum(facts.sum_of(request.checksum, &piece)?);
        if node.bp.is_gang() {
            let mut members = [BlockPtr::HOLE; MEMBERS];
            members.iter_mut().zip(&pointers[node.members.clone()]).for_each(|(slot, bp)| *slot = *bp);
            stores.push(Store { data: header(&members, &dvas[0], request.txg)?, dvas });
        } else {
            stores.push(Store { data: piece, dvas });
        }
    }
    Ok(stores)
}
