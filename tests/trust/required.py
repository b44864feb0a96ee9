"""The verb that each method of each service needs, and each operation over HTTP."""

from __future__ import annotations

from typing import Any

from relay.core.trust.verbs import AccessVerb

SCHEDULE, READ, OPERATE, DELIVER = (
    AccessVerb.SCHEDULE,
    AccessVerb.READ,
    AccessVerb.OPERATE,
    AccessVerb.DELIVER,
)
METHODS = {
    "TimerService": {
        "Schedule": SCHEDULE,
        "ScheduleBatch": SCHEDULE,
        "ScheduleColumns": SCHEDULE,
        "Cancel": SCHEDULE,
        "RunTimer": OPERATE,
        "GetTimer": READ,
        "ListTimers": READ,
        "GetTimerHistory": READ,
    },
    "DeliveryService": {"Deliver": DELIVER},
    "TopicService": {
        "ListTopics": READ,
        "GetTopic": READ,
        "PauseTopic": OPERATE,
        "ResumeTopic": OPERATE,
        "ReshardTopic": OPERATE,
        "Forecast": READ,
        "ListDeadLetters": READ,
        "GetDeadLetter": READ,
        "RedriveDeadLetters": OPERATE,
        "PurgeDeadLetters": OPERATE,
        "ForgetSubject": AccessVerb.ADMIN,
    },
    "RecurrenceService": {
        "PutRecurrence": SCHEDULE,
        "DeleteRecurrence": SCHEDULE,
        "GetRecurrence": READ,
        "ListRecurrences": READ,
        "GetRecurrenceHistory": READ,
        "PreviewRecurrence": READ,
        "PauseRecurrence": OPERATE,
        "ResumeRecurrence": OPERATE,
        "TriggerRecurrence": OPERATE,
        "BackfillRecurrence": OPERATE,
        "PutCalendar": OPERATE,
        "DeleteCalendar": OPERATE,
        "GetCalendar": READ,
        "ListCalendars": READ,
    },
}
OF_APPLICATIONS = {"TimerHandler"}
"""What applications serve, and relays call."""

RULE = {"every_sec": 60}
BODIES: dict[str, Any] = {
    "timers_schedule": {"delay_sec": 3600},
    "timers_put": {"delay_sec": 3600},
    "timers_batch": {"timers": [{"timer_id": "a", "delay_sec": 3600}]},
    "topics_redrive": {"dead_ids": ["1-0"]},
    "topics_purge": {"dead_ids": ["1-0"]},
    "topics_forget_subject": {"subject": "ann"},
    "recurrences_put": {"rule": RULE},
    "recurrences_preview": {"rule": RULE},
    "calendars_put": {"dates": []},
    "deliveries_receive": {"wait_sec": 0},
    "deliveries_settle": {"settlements": [{"token": "AAAA", "outcome": "ack"}]},
}
WEB = {
    "document_openapi": None,
    "topics_page": READ,
    "topics_get": READ,
    "topics_pause": OPERATE,
    "topics_resume": OPERATE,
    "topics_reshard": OPERATE,
    "topics_forecast": READ,
    "topics_dead_page": READ,
    "topics_dead_letter": READ,
    "topics_redrive": OPERATE,
    "topics_purge": OPERATE,
    "topics_forget_subject": AccessVerb.ADMIN,
    "timers_schedule": SCHEDULE,
    "timers_put": SCHEDULE,
    "timers_batch": SCHEDULE,
    "timers_cancel": SCHEDULE,
    "timers_page": READ,
    "timers_get": READ,
    "timers_history": READ,
    "timers_run": OPERATE,
    "recurrences_put": SCHEDULE,
    "recurrences_delete": SCHEDULE,
    "recurrences_page": READ,
    "recurrences_get": READ,
    "recurrences_history": READ,
    "recurrences_preview": READ,
    "recurrences_pause": OPERATE,
    "recurrences_resume": OPERATE,
    "recurrences_trigger": OPERATE,
    "recurrences_backfill": OPERATE,
    "calendars_page": READ,
    "calendars_get": READ,
    "calendars_put": OPERATE,
    "calendars_delete": OPERATE,
    "deliveries_receive": DELIVER,
    "deliveries_settle": DELIVER,
}
