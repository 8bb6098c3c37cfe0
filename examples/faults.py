"""What is injected into the live demo's training on purpose: known to the training, and to the demo that expects it to be found."""

STEPS = 300
SPIKE_STEP, SPIKE = 150, 200.0
"""At this step the verifier's loss is multiplied by so much, as by one broken batch (the update is clipped)."""
NAN_STEP = 220
"""At this step the solver's loss is NaN, as after log(0); the update is skipped, as a gradient scaler skips it."""
