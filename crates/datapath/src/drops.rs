// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own reasons for dropping what is watched.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;

use libbpf_rs::{Link, Object};

use crate::DatapathError;

/// What all names of reasons begin with.
const PREFIX: &str = "SKB_DROP_REASON_";

/// The program at the kernel's tracepoint of dropped packets. It costs all that the kernel drops, so it is attached for
/// as long as somebody watches.
pub(crate) struct Drops {
    object: Object,
    attached: RefCell<Option<Link>>,
}

impl Drops {
    pub(crate) fn new(object: Object) -> Self {
        let attached = RefCell::default();
        Self { object, attached }
    }

    /// Attaches or detaches the program; what is so already stays.
    pub(crate) fn watch(&self, on: bool) -> Result<(), DatapathError> {
        let mut attached = self.attached.borrow_mut();
        if !on {
            *attached = None;
        } else if attached.is_none() {
            let mut progs = self.object.progs_mut();
            let prog = progs.find(|prog| prog.name() == "freeway_dropped");
            let prog = prog.ok_or(DatapathError::Missing {
                object: "drops",
                name: "freeway_dropped",
            })?;
            let link = prog.attach().map_err(|source| DatapathError::Object {
                object: "drops",
                what: "attaching to the tracepoint kfree_skb",
                source,
            })?;
            *attached = Some(link);
        }
        Ok(())
    }
}

/// As [`crate::Datapath::drop_reasons`]; reads all of the kernel's BTF.
pub(crate) fn drop_reasons() -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    // SAFETY: the BTF is used only between load and free; a type of an enum's kind is followed by as many values as its
    // info says, and names are terminated strings of the BTF.
    unsafe {
        let btf = libbpf_sys::btf__load_vmlinux_btf();
        if btf.is_null() {
            return names;
        }
        let id = libbpf_sys::btf__find_by_name_kind(
            btf,
            c"skb_drop_reason".as_ptr(),
            libbpf_sys::BTF_KIND_ENUM,
        );
        let described = u32::try_from(id).map(|id| libbpf_sys::btf__type_by_id(btf, id));
        if let Ok(described) = described
            && !described.is_null()
        {
            let count = ((*described).info & 0xffff) as usize;
            let values = described.add(1).cast::<libbpf_sys::btf_enum>();
            for value in std::slice::from_raw_parts(values, count) {
                let name = libbpf_sys::btf__name_by_offset(btf, value.name_off);
                if !name.is_null() {
                    let name = CStr::from_ptr(name).to_string_lossy();
                    let name = name.strip_prefix(PREFIX).unwrap_or(&name);
                    names.insert(value.val.cast_unsigned(), name.to_lowercase());
                }
            }
        }
        libbpf_sys::btf__free(btf);
    }
    names
}
