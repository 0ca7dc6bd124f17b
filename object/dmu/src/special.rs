//! The objects that the objset block itself describes: the meta-dnode, and the accounting objects -1, -2 and -3.

use ondisk::{GROUPUSED_OBJECT, META_DNODE_OBJECT, ObjectId, PROJECTUSED_OBJECT, USERUSED_OBJECT};

/// The accounting objects.
pub(crate) const SPECIAL_OBJECTS: [ObjectId; 3] = [USERUSED_OBJECT, GROUPUSED_OBJECT, PROJECTUSED_OBJECT];

/// Index of an accounting object among the special ones.
pub(crate) fn special_index(object: ObjectId) -> Option<usize> {
    SPECIAL_OBJECTS.iter().position(|&special| special == object)
}

/// True for the objects whose records are in the objset block, not in the meta-dnode's blocks.
pub(crate) fn is_own(object: ObjectId) -> bool {
    object == META_DNODE_OBJECT || special_index(object).is_some()
}
