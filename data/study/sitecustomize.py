"""Let a logout hold. Potato's interpreter reads this file when it starts.

Flask would send the session's cookie with every answer. Potato's pages report to the server as they close, and an answer
that comes after a logout would log the person in again. So the cookie is sent at login and at logout alone.
"""

from flask import Flask

Flask.default_config = Flask.default_config | {"SESSION_REFRESH_EACH_REQUEST": False}
