"""Who may do what: access tokens, sessions of browsers, scopes.

A secret has 256 random bits. The journal has its hash, so that every server on the journal accepts it and nobody reads
it from there. A session is a token that a browser got for a login code or another token, and expires. Its secret has
two halves: a cookie, which no script reads but which browsers send to every port of the host, and a key, which the
pages of this origin alone can read. The journal has the hash of both together.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from collections import deque
from collections.abc import Callable, Collection
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reyn.errors import AccessTokenInvalid, ScopeMissing, TokenMissing, TooManyRequests
from reyn.journal.results import SCOPES, AccessToken, TokenScope

if TYPE_CHECKING:
    from reyn.journal import Journal

_SECOND = 1_000_000
_SESSION_SECONDS = 12 * 3600
_MAX_FAILURES, _FAILURE_SECONDS = 10, 60
_MAX_CLIENTS = 10_000
_MAX_NAME = 100


class Principal(msgspec.Struct, frozen=True):
    """Who makes a request: the name that is recorded, and what the credential permits."""

    name: str
    scopes: tuple[TokenScope, ...]
    skills: tuple[str, ...] = ()
    secret: str = ""
    is_session: bool = False

    def check(self, scope: TokenScope) -> None:
        """Raise `ScopeMissing` unless the credential has a scope."""
        if scope not in self.scopes and "admin" not in self.scopes:
            raise ScopeMissing(f"the token `{self.name}` does not have the scope `{scope}`")

    def sees(self, skill: str) -> bool:
        """Return whether the credential is for a skill."""
        return not self.skills or skill in self.skills

    def check_skill(self, skill: str) -> None:
        """Raise `ScopeMissing` unless the credential is for a skill."""
        if not self.sees(skill):
            raise ScopeMissing(f"the token `{self.name}` is not for the skill `{skill}`")

    def check_all_skills(self) -> None:
        """Raise `ScopeMissing` if the credential is for some skills only."""
        if self.skills:
            raise ScopeMissing(f"the token `{self.name}` is not for all skills")


class NewSession(NamedTuple):
    """A session that begins: the halves of its secret, and the seconds that it lasts."""

    principal: Principal
    cookie: str
    key: str
    seconds: int


def secret_hash(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def session_secret(cookie: str, key: str) -> str:
    """Return the secret of a session from its halves; empty if one is missing."""
    return f"{cookie} {key}" if cookie and key else ""


class AccessControl:
    """Finds the principal of a request, and makes and revokes tokens.

    Args:
        journal: The journal that has the tokens.
        now: Returns the time, in microseconds since 1970.
        user: The name of the user who started the server, for the sessions of the login link.
    """

    def __init__(self, journal: Callable[[], Journal], now: Callable[[], int], user: str) -> None:
        self._open_journal = journal
        self._now = now
        self._user = user
        self._codes: set[str] = set()
        self._failures: dict[str, deque[int]] = {}

    @property
    def _journal(self) -> Journal:
        return self._open_journal()

    # -- signing in -----------------------------------------------------------------------------------

    def new_code(self) -> str:
        """Return the code of a login link, which works once."""
        code = secrets.token_urlsafe(32)
        self._codes.add(secret_hash(code))
        return code

    def sign_in(self, secret: str, client: str) -> NewSession:
        """Return a session for a login code or an access token.

        Raises:
            TokenMissing: The code or token is unknown, used, revoked or expired.
            TooManyRequests: The client failed too often.
        """
        hashed = secret_hash(secret)
        if hashed in self._codes:
            self._codes.discard(hashed)
            token: AccessToken | None = AccessToken(self._user, hashed, SCOPES)
        else:
            token = self._find(hashed)
        if token is None or token.is_session:
            raise self._failed(client, "the login code or token is unknown, used or expired")
        name, scopes, skills = token.name, token.scopes, token.skills
        cookie, key, now = secrets.token_urlsafe(32), secrets.token_urlsafe(32), self._now()
        self._drop_expired(now)
        expires = min(now + _SESSION_SECONDS * _SECOND, token.expires or sys.maxsize)
        session = session_secret(cookie, key)
        label = f"{name} #{secret_hash(session)[:12]}"
        self._journal.add_access_token(
            AccessToken(label, secret_hash(session), scopes, skills, now, expires, is_session=True)
        )
        principal = Principal(name, scopes, skills, session, is_session=True)
        return NewSession(principal, cookie, key, (expires - now) // _SECOND)

    def sign_out(self, principal: Principal) -> None:
        """End a session."""
        for token in self._journal.access_tokens():
            if token.is_session and compare_digest(token.hash, secret_hash(principal.secret)):
                self._journal.remove_access_token(token.name)

    def find(self, secret: str, client: str, *, is_session: bool) -> Principal:
        """Return the principal of a secret.

        Raises:
            TokenMissing: It is unknown, revoked or expired.
            TooManyRequests: The client failed too often.
        """
        if not secret:  # a page that is not signed in
            raise TokenMissing("there is no token")
        token = self._find(secret_hash(secret))
        if token is None or token.is_session != is_session:
            raise self._failed(client, "the token is unknown, revoked or expired")
        name = token.name.partition(" #")[0] if token.is_session else token.name
        return Principal(name, token.scopes, token.skills, secret, is_session)

    def is_valid(self, principal: Principal) -> bool:
        """Return whether the credential of a principal still is one."""
        return self._find(secret_hash(principal.secret)) is not None

    def _find(self, hashed: str) -> AccessToken | None:
        now = self._now()
        for token in self._journal.access_tokens():
            if compare_digest(token.hash, hashed) and not (token.expires and token.expires <= now):
                return token
        return None

    def _drop_expired(self, now: int) -> None:
        for token in self._journal.access_tokens():
            if token.is_session and token.expires <= now:
                self._journal.remove_access_token(token.name)

    # -- failures -------------------------------------------------------------------------------------

    def _failed(self, client: str, message: str) -> TokenMissing | TooManyRequests:
        """Return the error for a secret that is not valid.

        A valid one is accepted whatever others of the same address tried: behind a proxy, and for the users of one
        machine, an address is no person.
        """
        found = self._failures.setdefault(client, deque(maxlen=_MAX_FAILURES))
        while found and abs(self._now() - found[0]) > _FAILURE_SECONDS * _SECOND:  # also if the clock was set back
            found.popleft()
        if len(found) >= _MAX_FAILURES:
            return TooManyRequests("too many failed attempts to sign in")
        found.append(self._now())
        if len(self._failures) > _MAX_CLIENTS:
            self._failures.pop(next(iter(self._failures)))
        return TokenMissing(message)


# -- tokens ------------------------------------------------------------------------------------------------


def new_token(
    journal: Journal,
    name: str,
    scopes: Collection[TokenScope],
    *,
    skills: Collection[str] = (),
    now: int,
    seconds: int | None = None,
) -> str:
    """Store an access token and return its secret, which is shown once.

    Args:
        journal: The journal that gets the token.
        name: The name that events record as the user.
        scopes: What it permits.
        skills: The only skills that it permits; empty for all.
        now: The time, in microseconds since 1970.
        seconds: How long it lasts; for ever by default.

    Raises:
        AccessTokenInvalid: The name is taken or invalid.
    """
    if not name or not name.isprintable() or "#" in name or len(name) > _MAX_NAME or name != name.strip():
        raise AccessTokenInvalid(
            f"`{name[:_MAX_NAME]}` is no name of a token",
            hint=f"Use 1 to {_MAX_NAME} printable characters without `#`.",
        )
    secret = f"reyn_{secrets.token_urlsafe(32)}"
    ordered = tuple(scope for scope in SCOPES if scope in scopes)
    expires = now + seconds * _SECOND if seconds is not None else 0
    if not journal.add_access_token(AccessToken(name, secret_hash(secret), ordered, tuple(skills), now, expires)):
        raise AccessTokenInvalid(f"a token with the name `{name}` exists", hint="Revoke it, or use another name.")
    return secret


def revoke_token(journal: Journal, name: str) -> None:
    """Remove a token and the sessions that were opened with it.

    Raises:
        AccessTokenInvalid: There is none of this name.
    """
    names = [
        token.name
        for token in journal.access_tokens()
        if token.name == name or (token.is_session and token.name.partition(" #")[0] == name)
    ]
    if not names:
        raise AccessTokenInvalid(f"there is no token `{name}`")
    for one in names:
        journal.remove_access_token(one)
