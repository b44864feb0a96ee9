"""The peers: for each a program that stores timers its own way, handles them and says how it went.

A program takes one JSON argument: `url`, `timers`, `payload` (bytes), `work`, and its tuning. With the work
`drain` it stores the timers, waits until all are due, handles them and says what `Tally.report` says. With
`idle` it handles an empty queue, stores timers one by one, each after the one before, and says how late they
were.
"""
