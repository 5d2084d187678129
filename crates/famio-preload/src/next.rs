//! libc's own functions, for the few hooks that need them.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use core::{mem, ptr};

/// A function of the next library, looked up once: at the first call, or, if POSIX allows that call in a signal
/// handler, by the constructor, since the dynamic linker has a lock.
pub struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// By name.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Looks it up, unless that was done.
    pub fn find(&self) -> *mut c_void {
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            address = find(self.name);
            self.address.store(address, Ordering::Relaxed);
        }
        address
    }

    /// As a function pointer of type `F`; `None` if no library has it.
    ///
    /// # Safety
    /// `F` is the type of the function of that name.
    pub unsafe fn get<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let address = self.find();
        if address.is_null() {
            return None;
        }
        // SAFETY: a function pointer has the size of an address, and the type is the caller's promise.
        Some(unsafe { mem::transmute_copy(&address) })
    }
}

/// The address of the next library's symbol, or null. Leaves errno unchanged.
pub fn find(name: &CStr) -> *mut c_void {
    // SAFETY: `name` is a C string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}
