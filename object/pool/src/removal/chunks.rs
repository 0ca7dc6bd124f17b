//! In which pieces the contents of a vdev are copied: neighbours together, with little free space between them (OpenZFS: `spa_vdev_copy_impl`,
//! `spa_vdev_copy_segment`).

use std::ops::Range;

/// Bounds of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of a piece at most: a multiple of the vdev's sectors.
    pub segment_max: u64,
    /// Free bytes between two segments of a piece at most.
    pub span_max: u64,
}

/// Part of a vdev that is copied to one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Allocated segments, in their order; the chunk begins with the first and ends with the last.
    pub live: Vec<Range<u64>>,
}

impl Chunk {
    /// Part of the vdev, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.live.first().map_or(0, |first| first.start)..self.live.last().map_or(0, |last| last.end)
    }

    /// Bytes of the part.
    pub fn bytes(&self) -> u64 {
        let range = self.range();
        range.end - range.start
    }

    /// Allocated bytes of the part.
    pub fn live_bytes(&self) -> u64 {
        self.live.iter().map(|segment| segment.end - segment.start).sum()
    }

    /// Free space between the segments.
    pub fn gaps(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.live.windows(2).map(|pair| pair[0].end..pair[1].start)
    }

    /// The chunk in two, of which the first has `most` bytes at most: it ends with a segment where one ends before that.
    pub fn divided(self, most: u64) -> (Chunk, Option<Chunk>) {
        let limit = self.range().start + most;
        let fitting = self.live.partition_point(|segment| segment.end <= limit);
        if fitting == self.live.len() {
            return (self, None);
        }
        let mut live = self.live;
        let mut rest = live.split_off(fitting.max(1));
        if fitting == 0
            && let Some(first) = live.first_mut()
        {
            rest.insert(0, limit..first.end);
            first.end = limit;
        }
        (Chunk { live }, Some(Chunk { live: rest }))
    }
}

/// Chunks of the segments, which are in their order and of one metaslab, with about so many live bytes at most.
pub(super) fn chunks(segments: impl Iterator<Item = Range<u64>>, limits: Limits, bytes_max: u64) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut bytes = 0;
    for mut segment in segments {
        let joins = |chunk: &&mut Chunk| {
            let range = chunk.range();
            segment.start - range.end <= limits.span_max && segment.end - range.start <= limits.segment_max
        };
        if let Some(chunk) = chunks.last_mut().filter(joins) {
            bytes += segment.end - segment.start;
            chunk.live.push(segment);
            continue;
        }
        while !segment.is_empty() {
            if bytes >= bytes_max {
                return chunks;
            }
            let end = segment.end.min(segment.start + limits.segment_max);
            bytes += end - segment.start;
            chunks.push(Chunk { live: std::iter::once(segment.start..end).collect() });
            segment.start = end;
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { segment_max: 100, span_max: 10 };

    fn of(segments: &[(u64, u64)], bytes_max: u64) -> Vec<Vec<(u64, u64)>> {
        let chunks = chunks(segments.iter().map(|(start, end)| *start..*end), LIMITS, bytes_max);
        chunks.into_iter().map(|chunk| chunk.live.into_iter().map(|segment| (segment.start, segment.end)).collect()).collect()
    }

    /// If this fails, something of a vdev that is removed is copied twice, or not at all.
    #[test]
    fn every_segment_is_in_one_chunk() {
        assert_eq!(
            of(&[(0, 20), (30, 40), (51, 60), (70, 151), (160, 400)], 1000),
            [vec![(0, 20), (30, 40)], vec![(51, 60), (70, 151)], vec![(160, 260)], vec![(260, 360)], vec![(360, 400)]]
        );
        assert_eq!(of(&[(0, 500), (600, 700)], 200), [vec![(0, 100)], vec![(100, 200)]], "the rest is another txg's");
        assert_eq!(of(&[(0, 50), (55, 60), (200, 210)], 20), [vec![(0, 50), (55, 60)]], "neighbours go together");
    }

    /// If this fails, what does not fit into one free segment is copied to two places, or to none.
    #[test]
    fn divided_chunks_have_everything_once() {
        type Segments = Vec<(u64, u64)>;
        let whole = || Chunk { live: vec![0..20, 30..40, 45..90] };
        let of = |chunk: Chunk| chunk.live.iter().map(|segment| (segment.start, segment.end)).collect::<Segments>();
        let shown = |most| {
            let (first, rest) = whole().divided(most);
            (of(first), rest.map(of))
        };
        assert_eq!(shown(90), (vec![(0, 20), (30, 40), (45, 90)], None));
        assert_eq!(shown(89), (vec![(0, 20), (30, 40)], Some(vec![(45, 90)])));
        assert_eq!(shown(25), (vec![(0, 20)], Some(vec![(30, 40), (45, 90)])));
        assert_eq!(shown(8), (vec![(0, 8)], Some(vec![(8, 20), (30, 40), (45, 90)])));
        assert_eq!(whole().gaps().collect::<Vec<_>>(), [20..30, 40..45]);
        assert_eq!((whole().bytes(), whole().live_bytes()), (90, 75));
    }
}
