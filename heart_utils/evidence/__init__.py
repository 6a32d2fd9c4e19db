"""Open studies that set people's replies beside models', as effects on one scale."""
