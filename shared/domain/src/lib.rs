//! What it means: the rules, pure, synchronous, told the time
