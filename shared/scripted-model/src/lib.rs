//! A scripted model server that speaks the providers' wires
