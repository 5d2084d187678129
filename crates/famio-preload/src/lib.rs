//! The POSIX interposer: thin hooks over `famio::posix`.
