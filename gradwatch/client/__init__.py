"""The client: what a training process uses to log to a collector, and what anything uses to ask one."""
