//! What makes a program one of ours: configuration, telemetry, clock, shutdown and drain, health
