//! What is said on the bus: names and shapes, no IO
