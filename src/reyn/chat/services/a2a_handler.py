"""Messages from one agent to another: the in-process half of A2A. `reyn.kernel.world.agent_messages` delivers them."""

from reyn.kernel.world.agent_messages import AgentMessages as A2AHandler

__all__ = ["A2AHandler"]
