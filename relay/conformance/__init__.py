"""A relay that plays scenes, and judges a client in any language by what it answers.

`relay conformance` runs it; docs/reference/conformance.md says what a client's command has to do; see 0132.
Nothing here is a part of the daemon, and nothing needs Redis.
"""
