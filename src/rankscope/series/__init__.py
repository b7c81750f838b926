"""Time series: the `Series` record, file readers and synthetic corpora.

Rules for files of series, the same for all formats (CSV, Parquet, Arrow, JSON lines) and all verbs:

**Layout.** *List*: a column holds lists of numbers and each row is a series; with several such columns, the one called
target, value or y, or else each gives one series per row, named ``id_column``. *Long*: an id column and a value column;
each row is one value. *Wide*: no id column; every numeric column is a series. A column is numeric if most of its cells
are numbers; booleans do not count. The first line of CSV names the columns: a date there is an error.

**Column names.** Unless given, columns are found by name, ignoring case, in this order. Id (no lists): item_id,
unique_id, series_id, id, series, item. Time: timestamp, date, datetime, ds, time, start, period, month, year. Value in
the long layout: target, value, y, or the only remaining numeric column; several are an error. An unnamed column is an
index written by pandas: it is the time column if it holds dates and there is no other, and is ignored otherwise. Where
none has such a name, the only column of dates holds the times (not in the list layout); several are an error. Other
columns of text are ignored, unless there are no times and they look like ids (every value in a block of rows): that is
an error.

**Time.** ISO dates; years (integers from 1000 to 3000); months (202401); days (20240131); or any other date format that
is the same in all rows and in which day and month cannot be confused. Other integers below ten million are step counts,
which imply no frequency. Time zones are dropped, keeping local time. In the list layout the time of a row is that of
its first value, or a list with one time per value.

**Frequency.** The ``freq`` argument, else the ``freq`` column of the list layout, else inferred from the times; in the
long layout, the first series with more than one time decides for all; a series whose values are all further apart than
a step of an inferred frequency is an error. Files without times, with step counts or with a
single time have no frequency: forecasts and evaluations reject them, other verbs do not need one.

**Order.** Series in order of first appearance; values sorted by time, or in row order without times.

**Gaps.** A missing step between the first and the last time of a series (of the table, in the wide layout) becomes
NaN, as do empty cells, null, NaN and, in text, words such as NA (which may be ids). Nothing is dropped, trimmed or
filled. A series without any number is an error, except for forecasts, which return NaN for it.

**Errors**, in one line with file, row and series: a repeated time in a series, or a time between two steps of the
frequency; a repeated id in the list layout; a non-numeric cell in a numeric column or a non-date in a time column; a
value that is infinite or exceeds single precision; a row with missing cells; an empty series; a file without rows.

**Folders.** The files of a folder and its subfolders, of one format and with the same columns, count as one file in the
order of their paths; rows are numbered through (of text the lines, headers too). Names that begin with ``_`` or ``.``
are left out. Scores are of each file by itself: a series must not go on in another one.

Streams (`rankscope.series.stream`) read the list and long layouts in chunks. The first chunk determines layout and
formats, and the rows of a series must be contiguous.
"""

from rankscope.series.layout import Columns
from rankscope.series.reader import read_series
from rankscope.series.record import Series

__all__ = ["Columns", "Series", "read_series"]
