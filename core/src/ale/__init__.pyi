from ale._front import aresume as aresume
from ale._front import arun as arun
from ale._front import resume as resume
from ale._front import run as run
from ale._run.control import steer as steer
from ale.functions import Answer as Answer
from ale.functions import agent as agent
from ale.functions import chunker as chunker
from ale.functions import credit as credit
from ale.functions import criterion as criterion
from ale.functions import objective as objective
from ale.functions import tasks as tasks
from ale.protocols import AgentContext as AgentContext
from ale.protocols import Terms as Terms
from ale.protocols import Tokens as Tokens
from ale.types import CriterionSpec as CriterionSpec
from ale.types import Group as Group
from ale.types import Stop as Stop
from ale.types import Task as Task
from ale.types import Trajectory as Trajectory

__version__: str
