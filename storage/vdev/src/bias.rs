//! Classes of blocks that top-level vdevs may be for: most are for all. Logs are told apart by [`crate::TopVdev::is_log`] alone.

use ondisk::names::alloc_bias;

/// Class of blocks that a top-level vdev is for (OpenZFS: `vdev_alloc_bias_t`, "allocation class"). The ZAP of the vdev has it, no configuration does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bias {
    /// All blocks, or those of intent logs.
    #[default]
    None,
    /// Metadata, and small blocks of files where their dataset asks for it.
    Special,
    /// Tables of deduplication.
    Dedup,
}

impl Bias {
    /// The word for the class, on disk and in commands.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Bias::None => None,
            Bias::Special => Some(alloc_bias::SPECIAL),
            Bias::Dedup => Some(alloc_bias::DEDUP),
        }
    }

    /// The class that a word names; [`Bias::None`] for a word that is not known, as OpenZFS takes it (`vdev_derive_alloc_bias`).
    pub fn of_word(word: &str) -> Bias {
        [Bias::Special, Bias::Dedup].into_iter().find(|bias| bias.word() == Some(word)).unwrap_or_default()
    }
}
