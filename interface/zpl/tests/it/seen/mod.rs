//! Contents of a node, as tests compare them: attributes, the target of a link, data.

use std::sync::Arc;
use zpl::{Node, Zfs};

fn sum(data: &[u8]) -> u64 {
    abd::fingerprint(data.len() as u64, data)
}

/// Attributes, target and data of a node, in words.
pub fn inside(zfs: &Arc<Zfs>, node: &Node) -> String {
    let (fields, mut whole) = (node.fields(), String::new());
    let mut attributes = zfs.list_xattrs(node).expect("attributes");
    attributes.sort();
    for name in attributes {
        let value = zfs.get_xattr(node, &name).expect("a value");
        whole += &format!(" {}={}:{:x}", String::from_utf8_lossy(&name), value.len(), sum(&value));
    }
    if fields.is_symlink() {
        whole += &format!(" target {:?}", zfs.read_link(node));
    }
    if fields.is_regular() {
        let data = zfs.read(node, 0, 1 << 30).expect("data").to_vec();
        whole += &format!(" data {} {:x}", data.len(), sum(&data));
    }
    whole
}
