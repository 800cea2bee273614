#!/usr/bin/env python3
"""A transport in a process of its own, in Python: memory that the ranks of one host share.

It has what postbox.go has, and does by hand what package process does for Go. It needs grpcio, grpcio-tools and
cryptography of PyPI. The page docs/transport-author.md says what every part is for.
"""

import base64
import concurrent.futures
import datetime
import fcntl
import os
import socket
import struct
import sys
import threading

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf import any_pb2

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../../../plugin/proto"))
pb, services = grpc.protos_and_services("transport.proto")

# Numbers of plugin/shunt_tables.h.
MEMORY, PLANS, BUFFERS = 1, 2, 4  # features
INVALID_ARGUMENT, UNSUPPORTED, CLOSED, INTERNAL = 1, 2, 8, 15
PRIVATE, SCRATCH, BUFFER = 0, 1, 2  # roles
HOST, MEMFD = 0, 1
COLL_ALL_GATHER = 3
SEND, RECV, REGION = 0, 1, 2  # spaces
SET, LOAD, STORE, COPY, SIGNAL, WAIT = 1, 2, 3, 4, 6, 7
ADD, MUL, MOD = 1, 3, 5
SLOT_BYTES, SLOT_ARRAYS = 1, 9
NONE = 65535

BOX = 16 << 10
COUNTER, SEMAPHORE, FIRST_BOX = 0, 64, 4096  # in the first region


class Failure(Exception):
    """What the host is told: a code and one sentence."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def fail(context, code, message):
    """Ends a call with an Error in the details of its status: a google.rpc.Status, of code 2 and one detail."""
    detail = any_pb2.Any()
    detail.Pack(pb.Error(code=code, rank=-1, message=message))
    detail = detail.SerializeToString()
    length, size = b"", len(detail)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    status = b"\x08\x02\x1a" + length + bytes([size]) + detail
    context.set_trailing_metadata((("grpc-status-details-bin", status),))
    context.abort(grpc.StatusCode.UNKNOWN, message)


class Writer:
    """Writes a plan of one track. Registers are numbers: slots, then constants, then temporaries."""

    def __init__(self, request, algorithm, consts):
        self.consts = list(dict.fromkeys(consts))
        self.slots = SLOT_ARRAYS + 4 * request.world
        self.plan = pb.Plan(algorithm=algorithm, collective=request.collective, dtype=request.dtype, op=request.op,
                            world=request.world, rank=request.rank, consts=self.consts)

    def const(self, value):
        return self.slots + self.consts.index(value)

    def temp(self):
        self.plan.temps += 1
        return self.slots + len(self.consts) + self.plan.temps - 1

    def ref(self, space, offset, rank=0):
        zero = self.const(0)  # also the number of the first region
        self.plan.refs.add(space=space, region=zero, rank=rank, offset=offset, scale=NONE)
        return len(self.plan.refs) - 1

    def step(self, kind, **operands):
        self.plan.steps.add(kind=kind, **operands)

    def set(self, alu, a, b):
        to = self.temp()
        self.step(SET, alu=alu, dst=to, a=a, b=self.const(b))
        return to


def all_gather(request, algorithm):
    """The plan of postbox.go: fill the box of this turn, signal, and read the boxes of all."""
    w = Writer(request, algorithm, [0, 1, 2, BOX, FIRST_BOX, SEMAPHORE, *range(request.world)])
    me = w.const(request.rank)
    own, old = w.ref(REGION, w.const(COUNTER), me), w.temp()
    w.step(LOAD, dst=old, a=own)
    epoch = w.set(ADD, old, 1)
    box = w.set(ADD, w.set(MUL, w.set(MOD, epoch, 2), BOX), FIRST_BOX)
    w.step(COPY, dst=w.ref(REGION, box, me), a=w.ref(SEND, w.const(0)), n=SLOT_BYTES)
    w.step(SIGNAL, dst=w.ref(REGION, w.const(SEMAPHORE), me), a=epoch, b=NONE)
    for rank in range(request.world):
        peer, displacement = w.const(rank), SLOT_ARRAYS + 3 * request.world + rank
        w.step(WAIT, a=w.ref(REGION, w.const(SEMAPHORE), peer), b=epoch, c=peer)
        w.step(COPY, dst=w.ref(RECV, displacement), a=w.ref(REGION, box, peer), n=SLOT_BYTES)
    w.step(STORE, dst=own, a=epoch)
    w.plan.tracks.add(first=0, count=len(w.plan.steps))
    return w.plan


class Endpoint:
    """One rank of one communicator: its descriptors, by region, and the lock under which its methods run."""

    def __init__(self):
        self.lock = threading.Lock()
        self.descriptors = {}
        self.open = False


class Transport(services.TransportServicer):
    """The service. Calls come on any thread; those for one endpoint take turns."""

    def __init__(self, host):
        self.host = host  # the socket of descriptors
        self.lock = threading.Lock()
        self.endpoints = {}
        self.generation = 0

    def call(self, request, context, method):
        """Runs a method on an open endpoint."""
        with self.lock:
            e = self.endpoints.get(request.endpoint, Endpoint())
        with e.lock:
            try:
                if not e.open:
                    raise Failure(CLOSED, f"endpoint {request.endpoint} is not open")
                return method(e)
            except Failure as f:
                fail(context, f.code, str(f))
            except OSError as error:
                fail(context, INTERNAL, str(error))

    def region(self, e, endpoint, id, role, size):
        """Makes a region, and sends its descriptor ahead of the reply that names it."""
        e.descriptors[id] = fd = os.memfd_create("postbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        socket.send_fds(self.host, [struct.pack("<4sIQ", b"SFD1", id, endpoint)], [fd])
        with self.lock:
            self.generation += 1
            handle = pb.Handle(kind=MEMFD, generation=self.generation, bytes=size, has_fd=True)
        return pb.Region(id=id, role=role, memory=HOST, bytes=size, handle=handle)

    def Info(self, request, context):
        return pb.InfoReply(name="pypost", version="1.0.0", features=MEMORY | PLANS | BUFFERS, memory=[HOST],
                            doc="the example of the transport author's guide, in Python", version_major=1,
                            version_minor=1)

    def Supports(self, request, context):
        r = request.request
        if r.memory != HOST:
            return pb.SupportsReply(reason="pypost moves host memory only")
        if r.hosts > 1:
            return pb.SupportsReply(reason="pypost reaches the ranks of one host only")
        if r.collective != COLL_ALL_GATHER:
            return pb.SupportsReply(reason="pypost has no plan of its own but for all_gather")
        return pb.SupportsReply(algorithms=[
            pb.Algorithm(name="boxes", max_bytes=BOX, latency=1 + 0.2 * r.world, bandwidth=2000)])

    def Open(self, request, context):
        for name in request.options:
            fail(context, INVALID_ARGUMENT, f'pypost: unknown option "{name}"; it has none')
        with self.lock:
            e = self.endpoints.setdefault(request.endpoint, Endpoint())
        with e.lock:
            regions = [self.region(e, request.endpoint, 0, PRIVATE, FIRST_BOX + 2 * BOX),
                       self.region(e, request.endpoint, 1, SCRATCH, max(1 << 20, request.world << 17))]
            e.open = True
            return pb.OpenReply(regions=regions)

    def Images(self, request, context):
        return self.call(request, context, lambda e: pb.ImagesReply())

    def Allocate(self, request, context):
        size = -(-request.bytes // 4096) * 4096
        return self.call(request, context, lambda e: pb.AllocateReply(
            region=self.region(e, request.endpoint, request.id, BUFFER, size)))

    def Free(self, request, context):
        def free(e):
            if request.id not in e.descriptors:
                raise Failure(INVALID_ARGUMENT, f"there is no buffer {request.id}")
            os.close(e.descriptors.pop(request.id))
            return pb.FreeReply()
        return self.call(request, context, free)

    def Prepare(self, request, context):
        def prepare(e):
            if request.algorithm != "boxes":
                raise Failure(UNSUPPORTED, f"pypost has no algorithm {request.algorithm}")
            return pb.PrepareReply(plan=all_gather(request.request, request.algorithm))
        return self.call(request, context, prepare)

    def Abort(self, request, context):
        return pb.AbortReply()

    def Close(self, request, context):
        with self.lock:
            e = self.endpoints.pop(request.endpoint, Endpoint())
        with e.lock:
            e.open = False
            for fd in e.descriptors.values():
                os.close(fd)
        return pb.CloseReply()


def certificate():
    """Makes a key and its certificate for "localhost"."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day,
                                   now + 10000 * day)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
    made = made.sign(key, hashes.SHA256())
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption())
    return text, made.public_bytes(serialization.Encoding.PEM), made.public_bytes(serialization.Encoding.DER)


def main():
    if os.environ.get("SHUNT_PLUGIN_COOKIE") != "shunt-transport":
        sys.exit("This is a Shunt transport. Shunt starts it; it does nothing by itself.")
    host = socket.socket(fileno=3)
    host.setblocking(True)
    os.set_inheritable(3, False)
    ended = threading.Event()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
    services.add_TransportServicer_to_server(Transport(host), server)

    def answer(reply, then=lambda: None):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: (then(), reply)[1])

    server.add_generic_rpc_handlers([
        grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": answer(b"\x08\x01")}),  # serving
        grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": answer(b"", ended.set)})])
    key, pem, der = certificate()
    path = os.environ["PLUGIN_UNIX_SOCKET_DIR"] + "/postbox"
    only = os.environ["PLUGIN_CLIENT_CERT"].encode()
    server.add_secure_port("unix:" + path, grpc.ssl_server_credentials([(key, pem)], only, True))
    server.start()
    print(f"1|1|unix|{path}|grpc|{base64.b64encode(der).decode().rstrip('=')}", flush=True)

    def watch():
        host.recv(1)  # ends with the host
        os._exit(0)
    threading.Thread(target=watch, daemon=True).start()
    ended.wait()
    server.stop(0.5).wait()


if __name__ == "__main__":
    main()
