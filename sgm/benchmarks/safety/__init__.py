"""SafetyGym, the paper's third benchmark."""
