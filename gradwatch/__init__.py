"""gradwatch: gradient-health observability for multi-agent LLM reinforcement learning.

Importing this package loads none of its parts and no third-party package, so a training script pays nothing for it.
"""

__version__ = "0.1.0"
