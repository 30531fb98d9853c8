"""An LDAP server on loopback that serves the entries (LDIF) on stdin, and prints its port."""

import sys

from ldaptor.inmemory import ReadOnlyInMemoryLDAPEntry, fromLDIFFile
from ldaptor.interfaces import IConnectedLDAPEntry
from ldaptor.protocols.ldap.ldapserver import LDAPServer
from twisted.internet import reactor
from twisted.internet.protocol import ServerFactory
from twisted.python.components import registerAdapter


class Directory(ServerFactory):
    protocol = LDAPServer

    def __init__(self, root: ReadOnlyInMemoryLDAPEntry) -> None:
        self.root = root


def serve(root: ReadOnlyInMemoryLDAPEntry) -> None:
    port = reactor.listenTCP(0, Directory(root), interface="127.0.0.1").getHost().port
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    registerAdapter(lambda factory: factory.root, Directory, IConnectedLDAPEntry)
    fromLDIFFile(sys.stdin.buffer).addCallback(serve)
    reactor.run()
