"""Errors on an HTTP/2 connection, with the codes of RFC 9113, section 7."""

from __future__ import annotations

from enum import IntEnum


class Http2ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Http2ConnectionError(Exception):
    """The connection must end: GOAWAY with this code, then it is closed."""

    def __init__(self, code: Http2ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Http2StreamError(Exception):
    """One stream must end: RST_STREAM with this code. Other streams continue."""

    def __init__(self, code: Http2ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Http2UnsupportedError(Http2StreamError):
    """A well-formed request for something not supported here; a server may answer 501 instead of resetting the stream."""

    def __init__(self, reason: str) -> None:
        super().__init__(Http2ErrorCode.PROTOCOL_ERROR, reason)


class HeaderCompressionError(Http2ConnectionError):
    """A header block that cannot be decoded: both sides would disagree about the state for every later block."""

    def __init__(self, reason: str) -> None:
        super().__init__(Http2ErrorCode.COMPRESSION_ERROR, reason)
