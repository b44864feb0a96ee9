"""Django: `manage.py handle_timers` runs the handlers of timers; see `relay.frameworks.django.apps`.

In `settings.py`: `INSTALLED_APPS = […, "relay.frameworks.django"]` and `RELAY_CLIENT = "shop.timers.client"`.
Views schedule with a `SyncRelayClient`, or with `relay.outbox` in their transaction:

>>> with transaction.atomic(), connection.cursor() as cursor:
...     order = Order.objects.create()
...     outbox.schedule(cursor, NewTimer(topic="reminders", payload=b"", delay=3600))
"""
