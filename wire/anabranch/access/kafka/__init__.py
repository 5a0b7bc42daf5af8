"""The credentials for Kafka as its users have them, as librdkafka's properties.

`properties` and `jaas` read the two grammars, `stores` certificates and keys, and `names` has the
table of names. `translation` decides what becomes of each, and `files` reads the sources. One
definition serves the SDK, commands and nodes.
"""

from anabranch.access.kafka.files import access_of, name_of_variable, read_access
from anabranch.access.kafka.translation import KafkaAccess, Taken

__all__ = ["KafkaAccess", "Taken", "access_of", "name_of_variable", "read_access"]
