"""Errors of the HTTP server and its client."""

from __future__ import annotations

from reyn.errors.base import ReynError


class GatewayError(ReynError, code="RYN800"):
    """An error of the HTTP server. The client raises it for a response that it does not know.

    Attributes:
        status: The HTTP status.
    """

    hint = "Look at the log of the server."
    status: int = 500


class RequestInvalid(GatewayError, code="RYN801"):
    """A request has a malformed or invalid body or parameter."""

    hint = "Correct the request; `/api/openapi.json` describes it."
    status = 422


class TokenMissing(GatewayError, code="RYN802"):
    """A request has no token, or one that is unknown, revoked or expired."""

    hint = "Sign in with the link that the server printed, or send `Authorization: Bearer TOKEN`."
    status = 401


class ScopeMissing(GatewayError, code="RYN803"):
    """The token does not permit the request."""

    hint = "Use a token with the scope, and for the skill, that the message names."
    status = 403


class RequestRefused(GatewayError, code="RYN804"):
    """A request comes from a web page of another origin, or names another host than the server's."""

    hint = "Open the address that the server printed."
    status = 403


class TooManyRequests(GatewayError, code="RYN805"):
    """A client failed to sign in too often, or the server has too many open streams."""

    hint = "Wait a minute."
    status = 429


class RequestTooLarge(GatewayError, code="RYN806"):
    """The body of a request is too large, or arrives too slowly."""

    hint = "Send less, or in time; the message has the limit."
    status = 413


class ResourceNotFound(GatewayError, code="RYN807"):
    """There is nothing at this address, or not for this method."""

    hint = "`/api/openapi.json` lists all addresses."
    status = 404


class AccessTokenInvalid(GatewayError, code="RYN808"):
    """The name of an access token is taken, unknown or invalid."""

    hint = "List the tokens, and use another name."
    status = 409


class AddressUnsafe(GatewayError, code="RYN809"):
    """The server would be reachable from other machines without encryption or without tokens."""

    hint = "Use a loopback address, or a certificate and tokens, or a proxy that encrypts."
    exit_code = 2


class ServerUnavailable(GatewayError, code="RYN810"):
    """The server cannot start, or a client cannot reach it."""

    hint = "Check the address, and whether the server runs."
    status = 503
