"""Series: one record, one reader of files for every verb, and generated corpora.

What a file of series means, whatever its format (CSV, Parquet, Arrow, JSON lines) and whoever reads it:

**Layout.** *List*: a column holds lists of numbers; a row is a series, and where several columns do, a series of
each, named ``id_column``. *Long*: a column of names and one of values; a row is a value. *Wide*: no column of names;
every column of numbers is a series. A column holds numbers where most of its cells are numbers; truth values are
none.

**Which column.** Names are matched without regard to case, in this order, unless they are given. Id: item_id,
unique_id, series_id, id, series, item. Time: timestamp, date, datetime, ds, time, start, period, month, year. Value
of the long layout: target, value, y, or the only column of numbers that is left; several are refused. A column
without a name is an index that pandas wrote: the time, where it holds dates and no other column is one; else it is
left out.

**Time.** ISO dates; years (whole numbers from 1000 to 3000); days (20240131); or another way of writing dates that is
the same for all rows and cannot be read with day and month exchanged. Other whole numbers below ten million count
steps, and tell no frequency. A time zone is dropped: what the clock on the wall shows counts. In the list layout the
time of a row is that of its first value, or a list with a time for each.

**Frequency.** What is asked for (``freq``), else what a row states (column ``freq`` of the list layout), else what
the times tell: in the long layout those of the first series that has more than one, for all. Without times, with
steps, or with a single time there is none: forecasts and evaluations refuse the file, the other verbs need none.

**Order.** Series come as they first appear; the values of a series by time, and as the rows stand where there is no
time.

**Gaps.** A step between the first and the last time of a series (of the table, in the wide layout) that has no row is
NaN; so are an empty cell, null and NaN. Nothing is closed up, cut off or filled. A series without any number is
refused, but by forecasts, which give it NaN.

**Refused**, by one line that names file, row and series: a time that comes twice in a series, or lies between two
steps of the frequency; a name that comes twice in the list layout; a cell that is no number or no date among others
that are; a value that is infinite or beyond single precision; a row with cells missing; a series of no values; a file
without rows.

Streams (`rankscope.series.stream`) read the list and the long layout in chunks by the same rules, which are fixed by
the first chunk; rows of a series have to stand together.
"""

from rankscope.series.layout import Columns
from rankscope.series.reader import read_series
from rankscope.series.record import Series

__all__ = ["Columns", "Series", "read_series"]
