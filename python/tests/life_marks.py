"""What the programs of life_programs.py share: marks by which two ranks wait for each other, and checks."""

import os
import time

#: More bytes than what ranks exchange by words or copies that return early.
LONG = 1 << 18


MARKS = os.environ.get("SHUNT_ID", "").removeprefix("file://") + "-"


# Both work where no module is left.
def mark(name, open=os.open, close=os.close, marks=MARKS, flags=os.O_CREAT | os.O_WRONLY):
    close(open(marks + name, flags))


def await_mark(name, stat=os.stat, sleep=time.sleep, marks=MARKS):
    while True:
        try:
            return stat(marks + name)
        except FileNotFoundError:
            sleep(0.001)


def say(text, write=os.write):
    write(1, text.encode())


def same(array, value):
    assert array[0] == value and array[-1] == value, (array[0], array[-1], value)


def tell(name, number):
    with open(MARKS + "new", "w") as file:
        file.write(str(number))
    os.rename(MARKS + "new", MARKS + name)


def read(name):
    with open(MARKS + name) as file:
        return file.read()
