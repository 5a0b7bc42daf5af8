"""A node's settings: their names, their sources, and the page that lists them."""

from anabranch.broker.settings.model import SETTING_NAMES as SETTING_NAMES
from anabranch.broker.settings.model import Settings as Settings
from anabranch.broker.settings.model import SettingsError as SettingsError
from anabranch.broker.settings.model import load_settings as load_settings
