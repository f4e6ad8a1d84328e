"""Row-wise helpers shared by the chunked operators."""

from kgen.lang import *


def cumsum_rows(s, o):
    for t in tasks(chunks(T), heads(HV)):
        o[t] = cumsum(s[t], 0, reverse=reverse) * scale
