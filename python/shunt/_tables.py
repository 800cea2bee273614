# Code generated from plugin/tables.json by gentables. DO NOT EDIT.
"""The contract's tables: error codes, dtypes, reduction ops and collectives."""

import builtins
import enum


class Code(enum.IntEnum):
    """Code says what kind of failure an error is. Zero is success."""

    OK = 0  # success
    INVALID_ARGUMENT = 1  # an argument is null, misaligned, negative, overflowing or of the wrong kind
    UNSUPPORTED = 2  # no transport can do this; the message says why each one cannot
    MISMATCH = 3  # ranks disagree about the operation, its dtype, count, root or order
    TIMEOUT = 4  # a deadline passed; the message names the rank that was waited for
    PEER_DIED = 5  # a peer rank's process ended or its connection was lost
    PLUGIN_DIED = 6  # a transport's process ended or does not respond
    ABORTED = 7  # the communicator was aborted, here or on a peer
    CLOSED = 8  # the communicator, endpoint or handle is closed
    OUT_OF_MEMORY = 9  # memory, file descriptors or another limit ran out
    SYSTEM = 10  # a system call failed; the message carries errno
    PROTOCOL = 11  # bytes from another process are malformed or not authentic
    PLUGIN_REJECTED = 12  # a plugin could not be loaded; the message says what is wrong with it
    FORKED = 13  # the process forked after Shunt started; use spawn or forkserver
    DEVICE = 14  # the accelerator or its driver reported an error
    INTERNAL = 15  # a bug in Shunt or in a transport


class DType(enum.IntEnum):
    """DType is the type of one element. Values equal ncclDataType_t."""

    INT8 = 0  # 8-bit signed integer
    UINT8 = 1  # 8-bit unsigned integer
    INT32 = 2  # 32-bit signed integer
    UINT32 = 3  # 32-bit unsigned integer
    INT64 = 4  # 64-bit signed integer
    UINT64 = 5  # 64-bit unsigned integer
    FLOAT16 = 6  # IEEE 754 binary16; reductions accumulate in float32
    FLOAT32 = 7  # IEEE 754 binary32
    FLOAT64 = 8  # IEEE 754 binary64
    BFLOAT16 = 9  # bfloat16; reductions accumulate in float32
    FLOAT8_E4M3 = 10  # OCP FP8 E4M3 (no infinity, saturating); reductions accumulate in float32
    FLOAT8_E5M2 = 11  # OCP FP8 E5M2; reductions accumulate in float32


DTYPE_BYTES = {
    DType.INT8: 1,
    DType.UINT8: 1,
    DType.INT32: 4,
    DType.UINT32: 4,
    DType.INT64: 8,
    DType.UINT64: 8,
    DType.FLOAT16: 2,
    DType.FLOAT32: 4,
    DType.FLOAT64: 8,
    DType.BFLOAT16: 2,
    DType.FLOAT8_E4M3: 1,
    DType.FLOAT8_E5M2: 1,
}


class Op(enum.IntEnum):
    """Op is a reduction operation. Values equal ncclRedOp_t. Integer sums and products wrap; avg of integers truncates
    toward zero; min and max return NaN if any input is NaN."""

    SUM = 0  # sum of all ranks
    PROD = 1  # product of all ranks
    MAX = 2  # maximum of all ranks
    MIN = 3  # minimum of all ranks
    AVG = 4  # sum divided by the world size
    # sum of each rank's data times that rank's scalar; the product is rounded to the dtype before it is summed
    PREMUL_SUM = 5


class Collective(enum.IntEnum):
    """Collective is an operation that a communicator offers."""

    ALL_REDUCE = 0  # reduce count elements over all ranks; every rank gets the result
    REDUCE = 1  # reduce count elements over all ranks; root gets the result
    BROADCAST = 2  # root's count elements go to every rank
    ALL_GATHER = 3  # count elements of every rank, in rank order, to every rank
    ALL_GATHER_V = 4  # as all_gather, with a count and displacement for each rank
    REDUCE_SCATTER = 5  # reduce world*count elements; rank r gets block r of count elements
    REDUCE_SCATTER_V = 6  # as reduce_scatter, with a count and displacement for each rank
    ALL_TO_ALL = 7  # block r of count elements goes to rank r
    ALL_TO_ALL_V = 8  # as all_to_all, with counts and displacements for each peer, both ways
    GATHER = 9  # count elements of every rank, in rank order, to root
    GATHER_V = 10  # as gather, with a count and displacement for each rank
    SCATTER = 11  # root's block r of count elements goes to rank r
    SCATTER_V = 12  # as scatter, with a count and displacement for each rank
    SEND = 13  # count elements to one peer, matched in order by its recv
    RECV = 14  # count elements from one peer, matched in order by its send
    BARRIER = 15  # no rank leaves before every rank has entered
    PUT = 16  # write into a peer's window
    GET = 17  # read from a peer's window
    SIGNAL = 18  # raise this rank's counter at a peer's window after earlier puts are visible there
    WAIT = 19  # wait until a peer has raised its counter at this rank's window the given number of times


class MemoryKind(enum.IntEnum):
    """MemoryKind says where bytes live."""

    HOST = 0  # host memory, reached by CPU loads and stores
    CUDA = 1  # memory of a CUDA device


class ShuntError(RuntimeError):
    """Any failure that Shunt reports; `code` is its Code."""

    code = Code.INTERNAL


class InvalidArgumentError(ShuntError, builtins.ValueError):
    """an argument is null, misaligned, negative, overflowing or of the wrong kind"""

    code = Code.INVALID_ARGUMENT


class UnsupportedError(ShuntError):
    """no transport can do this; the message says why each one cannot"""

    code = Code.UNSUPPORTED


class MismatchError(ShuntError):
    """ranks disagree about the operation, its dtype, count, root or order"""

    code = Code.MISMATCH


class TimeoutError(ShuntError, builtins.TimeoutError):
    """a deadline passed; the message names the rank that was waited for"""

    code = Code.TIMEOUT


class PeerDiedError(ShuntError):
    """a peer rank's process ended or its connection was lost"""

    code = Code.PEER_DIED


class PluginDiedError(ShuntError):
    """a transport's process ended or does not respond"""

    code = Code.PLUGIN_DIED


class AbortedError(ShuntError):
    """the communicator was aborted, here or on a peer"""

    code = Code.ABORTED


class ClosedError(ShuntError):
    """the communicator, endpoint or handle is closed"""

    code = Code.CLOSED


class OutOfMemoryError(ShuntError, builtins.MemoryError):
    """memory, file descriptors or another limit ran out"""

    code = Code.OUT_OF_MEMORY


class SystemError(ShuntError):
    """a system call failed; the message carries errno"""

    code = Code.SYSTEM


class ProtocolError(ShuntError):
    """bytes from another process are malformed or not authentic"""

    code = Code.PROTOCOL


class PluginRejectedError(ShuntError):
    """a plugin could not be loaded; the message says what is wrong with it"""

    code = Code.PLUGIN_REJECTED


class ForkedError(ShuntError):
    """the process forked after Shunt started; use spawn or forkserver"""

    code = Code.FORKED


class DeviceError(ShuntError):
    """the accelerator or its driver reported an error"""

    code = Code.DEVICE


class InternalError(ShuntError):
    """a bug in Shunt or in a transport"""

    code = Code.INTERNAL


ERRORS = {
    Code.INVALID_ARGUMENT: InvalidArgumentError,
    Code.UNSUPPORTED: UnsupportedError,
    Code.MISMATCH: MismatchError,
    Code.TIMEOUT: TimeoutError,
    Code.PEER_DIED: PeerDiedError,
    Code.PLUGIN_DIED: PluginDiedError,
    Code.ABORTED: AbortedError,
    Code.CLOSED: ClosedError,
    Code.OUT_OF_MEMORY: OutOfMemoryError,
    Code.SYSTEM: SystemError,
    Code.PROTOCOL: ProtocolError,
    Code.PLUGIN_REJECTED: PluginRejectedError,
    Code.FORKED: ForkedError,
    Code.DEVICE: DeviceError,
    Code.INTERNAL: InternalError,
}
