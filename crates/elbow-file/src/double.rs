//! Storage doubles: wrappers around a [`Storage`](crate::Storage) for tests.
