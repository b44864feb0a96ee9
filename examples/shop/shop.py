"""A shop: orders with a reminder, which a payment cancels, and a report of each night."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from relay import inbox, outbox
from relay.client import Delivery, RelayClient
from relay.frameworks.fastapi import lifespan

DATABASE = os.environ.get("SHOP_DATABASE", "postgresql://shop@localhost/shop")
THREE_DAYS = 3 * 86_400.0

engine = create_async_engine(DATABASE.replace("postgresql:", "postgresql+psycopg:"))
sessions = async_sessionmaker(engine)
client = RelayClient()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    paid: Mapped[bool] = mapped_column(default=False)


class Mail(Base):  # what another process sends
    __tablename__ = "mails"
    id: Mapped[int] = mapped_column(primary_key=True)
    to: Mapped[str]
    text: Mapped[str]


class Report(Base):
    __tablename__ = "reports"
    night: Mapped[str] = mapped_column(primary_key=True)
    orders: Mapped[int]
    unpaid: Mapped[int]


class NewOrder(BaseModel):
    customer: str
    remind_after: float = THREE_DAYS  # seconds


class Reminder(BaseModel):  # the payload of a timer
    order: int
    customer: str


reminders = client.topic("reminders", Reminder)


@reminders.on(concurrency=10)
async def remind(reminder: Reminder, delivery: Delivery) -> None:
    async with sessions.begin() as session:
        if not await inbox.is_first(session, delivery):
            return
        order = await session.get_one(Order, reminder.order, with_for_update=True)
        if not order.paid:
            session.add(Mail(to=reminder.customer, text=f"Order {order.id} is not paid yet."))


@client.cron("0 2 * * *", zone="Europe/Berlin")
async def nightly_report(delivery: Delivery) -> None:
    async with sessions.begin() as session:
        if not await inbox.is_first(session, delivery):
            return
        orders = await session.scalar(select(func.count(Order.id))) or 0
        unpaid = await session.scalar(select(func.count(Order.id)).where(~Order.paid)) or 0
        night = datetime.fromisoformat(delivery.headers["relay-nominal-time"])
        session.add(Report(night=night.isoformat(), orders=orders, unpaid=unpaid))


@asynccontextmanager
async def database(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan(client, around=database))


@app.post("/orders", status_code=201)
async def place_order(new: NewOrder) -> dict[str, Any]:
    async with sessions.begin() as session:
        order = Order(customer=new.customer)
        session.add(order)
        await session.flush()  # the order has its number
        reminder = Reminder(order=order.id, customer=new.customer)
        timer = reminders.new_timer(reminder, delay=new.remind_after, timer_id=f"order-{order.id}")
        await outbox.schedule(session, timer)
        number = order.id
    return {"order": number}


@app.post("/orders/{number}/payment")
async def pay(number: int) -> dict[str, Any]:
    async with sessions.begin() as session:
        order = await session.get(Order, number, with_for_update=True)
        if order is None:
            raise HTTPException(404, "there is no such order")
        order.paid = True
        await outbox.cancel(session, "reminders", f"order-{number}")
    return {"order": number, "paid": True}


@app.get("/mails")
async def mails() -> list[dict[str, str]]:
    async with sessions() as session:
        return [{"to": mail.to, "text": mail.text} for mail in await session.scalars(select(Mail))]


@app.get("/reports")
async def reports() -> list[dict[str, int]]:
    async with sessions() as session:
        found = await session.scalars(select(Report).order_by(Report.night))
        return [{"orders": each.orders, "unpaid": each.unpaid} for each in found]


@app.get("/ready")
async def ready() -> dict[str, bool]:
    if not client.ready():
        raise HTTPException(503, "no stream to the relay is open")
    return {"ready": True}
