// Containers of the C++ library in a file: an allocator returns memory of a region, and pointers are distances, so the file may be
// mapped at another address the next time. A ledger of accounts: each transfer changes two accounts and a list of transfers; after a crash it is
// there as a whole, or not at all.
//
//   c++ -std=c++17 containers.cpp $(pkg-config --cflags --libs famio) -o containers
//   ./containers FILE N        transfers N times, and prints the sum, which stays the same, and the total number of transfers
#include <famio.h>

#include <fcntl.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace {

[[noreturn]] void fail(const char *what) {
  std::fprintf(stderr, "containers: %s: %s\n", what, nverrmsg());
  std::exit(1);
}

// A pointer that holds the distance from itself to its target. One: null.
template <class T> class distance {
  std::ptrdiff_t far_ = 1;

  void set(const volatile void *to) {
    far_ = to ? reinterpret_cast<std::intptr_t>(to) - reinterpret_cast<std::intptr_t>(this) : 1;
  }

public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using difference_type = std::ptrdiff_t;
  using pointer = distance;
  using reference = std::add_lvalue_reference_t<T>;
  using iterator_category = std::random_access_iterator_tag;
  template <class U> using rebind = distance<U>;

  distance() = default;
  distance(std::nullptr_t) {}
  explicit distance(T *to) { set(to); }
  distance(const distance &other) { set(other.get()); }
  template <class U, class = std::enable_if_t<std::is_convertible_v<U *, T *>>>
  distance(const distance<U> &other) {
    set(static_cast<T *>(other.get()));
  }
  // As a cast from void would.
  template <class U, class = void, class = std::enable_if_t<!std::is_convertible_v<U *, T *>>>
  explicit distance(const distance<U> &other) {
    set(static_cast<T *>(other.get()));
  }
  distance &operator=(const distance &other) {
    set(other.get());
    return *this;
  }
  distance &operator=(std::nullptr_t) {
    set(nullptr);
    return *this;
  }

  T *get() const {
    return far_ == 1 ? nullptr : reinterpret_cast<T *>(reinterpret_cast<std::intptr_t>(this) + far_);
  }
  template <class U = T> std::add_lvalue_reference_t<U> operator*() const { return *get(); }
  T *operator->() const { return get(); }
  template <class U = T> std::add_lvalue_reference_t<U> operator[](difference_type n) const { return get()[n]; }
  explicit operator bool() const { return far_ != 1; }
  template <class U = T> static distance pointer_to(U &to) { return distance(std::addressof(to)); }

  distance &operator+=(difference_type n) { set(get() + n); return *this; }
  distance &operator-=(difference_type n) { set(get() - n); return *this; }
  distance &operator++() { return *this += 1; }
  distance &operator--() { return *this -= 1; }
  distance operator++(int) { distance old(*this); ++*this; return old; }
  distance operator--(int) { distance old(*this); --*this; return old; }
  friend distance operator+(distance a, difference_type n) { a += n; return a; }
  friend distance operator+(difference_type n, distance a) { a += n; return a; }
  friend distance operator-(distance a, difference_type n) { a -= n; return a; }
  friend difference_type operator-(const distance &a, const distance &b) { return a.get() - b.get(); }
  friend bool operator==(const distance &a, const distance &b) { return a.get() == b.get(); }
  friend bool operator!=(const distance &a, const distance &b) { return a.get() != b.get(); }
  friend bool operator<(const distance &a, const distance &b) { return a.get() < b.get(); }
  friend bool operator>(const distance &a, const distance &b) { return b < a; }
  friend bool operator<=(const distance &a, const distance &b) { return !(b < a); }
  friend bool operator>=(const distance &a, const distance &b) { return !(a < b); }
};

int the_file = -1;
void *the_base = nullptr;

// The memory of the file: the region is as long as the file may get, the file as long as the allocated part.
constexpr std::size_t most = 64 << 20;

struct heap {
  std::uint64_t end;            // of the allocated part of the file
  distance<void> free[48];      // freed memory, by powers of two

  static unsigned power(std::size_t bytes) {
    unsigned power = 5;
    while ((std::size_t{1} << power) < bytes) power++;
    return power;
  }
  void *give(std::size_t bytes) {
    unsigned power = heap::power(bytes);
    if (free[power]) {
      void *place = free[power].get();
      free[power] = *static_cast<distance<void> *>(place);
      return place;
    }
    std::uint64_t place = end;
    end += std::uint64_t{1} << power;
    if (end > most || nvftruncate(the_file, static_cast<off_t>(end))) throw std::bad_alloc();
    return static_cast<char *>(the_base) + place;
  }
  void take_back(void *place, std::size_t bytes) {
    unsigned power = heap::power(bytes);
    auto *link = new (place) distance<void>(free[power]);
    free[power] = distance<void>(static_cast<void *>(link));
  }
};

heap *the_heap = nullptr;

template <class T> struct of_file {
  using value_type = T;
  using pointer = distance<T>;
  of_file() = default;
  template <class U> of_file(const of_file<U> &) {}
  pointer allocate(std::size_t n) { return pointer(static_cast<T *>(the_heap->give(n * sizeof(T)))); }
  void deallocate(pointer place, std::size_t n) { the_heap->take_back(place.get(), n * sizeof(T)); }
  friend bool operator==(const of_file &, const of_file &) { return true; }
  friend bool operator!=(const of_file &, const of_file &) { return false; }
};

template <class T> using file_vector = std::vector<T, of_file<T>>;

struct transfer {
  std::uint32_t from, to;
  std::int64_t amount;
};

struct ledger {
  file_vector<std::int64_t> accounts;
  file_vector<transfer> made;
};

struct root {
  std::uint64_t magic;
  heap memory;
  ledger books;
};

constexpr std::uint64_t magic = 0x726564'67656cull;
constexpr int accounts = 100;
constexpr std::int64_t each = 1000;

} // namespace

int main(int argc, char **argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: containers FILE N\n");
    return 2;
  }
  the_file = nvopen(argv[1], O_RDWR | O_CREAT, 0644);
  if (the_file < 0) fail(argv[1]);
  struct stat stat;
  if (nvfstat(the_file, &stat)) fail("nvfstat");
  bool is_new = stat.st_size == 0;
  if (is_new && nvftruncate(the_file, sizeof(root))) fail("nvftruncate");
  void *base = nvmmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_SHARED, the_file, 0);
  if (base == MAP_FAILED) fail("nvmmap");

  the_base = base;
  auto *file = static_cast<root *>(base);
  the_heap = &file->memory;
  if (is_new) {
    new (file) root{};
    file->memory.end = (sizeof(root) + 63) / 64 * 64;
    file->books.accounts.assign(accounts, each);
    file->magic = magic;
    if (nvmsync(base, most, MS_SYNC)) fail("nvmsync");
  } else if (file->magic != magic) {
    std::fprintf(stderr, "containers: %s: not a ledger\n", argv[1]);
    return 1;
  }

  // The state that a transfer found and its changes belong together, as does the state that a crash left.
  std::vector<std::int64_t> replayed(accounts, each);
  for (const transfer &one : file->books.made) {
    replayed[one.from] -= one.amount;
    replayed[one.to] += one.amount;
  }
  std::int64_t sum = 0;
  for (int i = 0; i < accounts; i++) {
    sum += file->books.accounts[static_cast<std::size_t>(i)];
    if (replayed[static_cast<std::size_t>(i)] != file->books.accounts[static_cast<std::size_t>(i)]) {
      std::fprintf(stderr, "containers: account %d is not what was transferred\n", i);
      return 1;
    }
  }
  std::printf("%lld %zu\n", static_cast<long long>(sum), file->books.made.size());
  std::fflush(stdout);

  for (long n = std::atol(argv[2]); n > 0; n--) {
    auto k = static_cast<std::uint32_t>(file->books.made.size());
    transfer one{k * 37 % accounts, (k * 61 + 17) % accounts, 1 + k % 10};
    file->books.accounts[one.from] -= one.amount;
    file->books.accounts[one.to] += one.amount;
    file->books.made.push_back(one);
    if (nvmsync(base, most, MS_SYNC)) fail("nvmsync");
    std::printf("%zu\n", file->books.made.size());
    std::fflush(stdout);
  }
  if (nvmunmap(base, most) || nvclose(the_file)) fail("nvclose");
  return 0;
}
