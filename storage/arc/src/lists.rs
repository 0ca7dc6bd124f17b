//! Entries in a slab, linked into lists by index: every move between lists is O(1) and allocates nothing.

/// Index that stands for "no entry".
pub(crate) const NIL: u32 = u32::MAX;

/// Links of one entry in one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) previous: u32,
    pub(crate) next: u32,
}

impl Default for Links {
    fn default() -> Links {
        Links { previous: NIL, next: NIL }
    }
}

impl Links {
    /// The entry that was used next after this one; None for the front.
    pub(crate) fn newer(self) -> Option<u32> {
        (self.previous != NIL).then_some(self.previous)
    }
}

/// Ends of a doubly linked list through a slab; the front is the most recently used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    front: u32,
    back: u32,
    count: u64,
}

impl Default for List {
    fn default() -> List {
        List { front: NIL, back: NIL, count: 0 }
    }
}

impl List {
    /// The least recently used entry.
    pub(crate) fn back(&self) -> Option<u32> {
        (self.back != NIL).then_some(self.back)
    }
    /// Number of entries.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
    /// Puts `index` at the front; `links` finds an entry's links for this list.
    pub(crate) fn push_front<T>(&mut self, slab: &mut [T], index: u32, links: impl Fn(&mut T) -> &mut Links) {
        *links(&mut slab[index as usize]) = Links { previous: NIL, next: self.front };
        match self.front {
            NIL => self.back = index,
            front => links(&mut slab[front as usize]).previous = index,
        }
        self.front = index;
        self.count += 1;
    }
    /// Takes `index` out.
    pub(crate) fn remove<T>(&mut self, slab: &mut [T], index: u32, links: impl Fn(&mut T) -> &mut Links) {
        let Links { previous, next } = std::mem::take(links(&mut slab[index as usize]));
        match previous {
            NIL => self.front = next,
            previous => links(&mut slab[previous as usize]).next = next,
        }
        match next {
            NIL => self.back = previous,
            next => links(&mut slab[next as usize]).previous = previous,
        }
        self.count -= 1;
    }
}
