//! The library's memory is its own: see [`famio::heap`].

#[global_allocator]
static HEAP: famio::heap::Heap = famio::heap::Heap::new();
