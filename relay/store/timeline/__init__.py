"""Topics that relays deliver from the timeline: timers, and what people do to them."""
