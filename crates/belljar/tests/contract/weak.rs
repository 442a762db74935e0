//! The suite against a wall that holds nothing.
