"""Read by Potato's interpreter when it starts: a page writes the session's cookie at login and at logout, and at no other time.

Else Flask sends it anew with every answer, and what a page still has under way when somebody clicks Logout (Potato's pages
report to the server as they close) logs them in again.
"""

from flask import Flask

Flask.default_config = Flask.default_config | {"SESSION_REFRESH_EACH_REQUEST": False}
