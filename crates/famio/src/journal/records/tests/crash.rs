//! Crashes at any point.
