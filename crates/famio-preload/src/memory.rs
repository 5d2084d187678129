//! The library has its own memory: see [`famio::heap`].

#[global_allocator]
static HEAP: famio::heap::Heap = famio::heap::Heap::new();
