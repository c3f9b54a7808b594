import json,sys,os
d=json.load(sys.stdin)
if os.path.exists('/tmp/scr/h/ok'): print(json.dumps({"output":"fine"}))
else: print("not json {")
