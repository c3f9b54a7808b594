//! Text without secrets, some of which looks similar.

pub(super) const TEXT: &str = r#"
commit 7364895c0ffee0123456789abcdef0123456789a
id 550e8400-e29b-41d4-a716-446655440000, sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
   Compiling regex v1.13.1 (/home/ada/project/crates/drivers)
PWD=/home/ada/project
OLDPWD=/home/ada
warning: unexpected token: expected `}`, found `)`
error: bad token: identifier
SyntaxError: Unexpected token < in JSON at position 0
let token = self.next_token();
let token = tokens[0];
let token: Token = Token::Ident;
    token: String,
    password: &str,
    token: str
    pub token: Option<String>,
    password: Optional[str] = None
client = Client(token=token, password=password)
client = Client(token=self.token, api_key=os.environ["API_KEY"])
if password == "hunter2" {
self.token = token;
token_count=1234 max_tokens: 4096
{"usage":{"input_tokens":1234,"output_tokens":567,"cache_read_input_tokens":0}}
{"token": "the", "logprob": -0.25}
{"token": null, "password": "", "secret": false}
{"password": {"type": "string"}, "token": {"type": "string"}}
{"token": "string", "description": "the token to use"}
password: ${DB_PASSWORD}
password=$PASSWORD
API_KEY=<your key>
token: {{ token }}
secret: ***
password=********
token=xxxxxxxx
[sudo] password for ada:
Enter password: 
Password: required
--token <TOKEN>  The token to use
--password string   the password
Authorization: required
headers["Authorization"] = f"Bearer {token}"
a bearer of bad news, bearer authentication
the secretary has spoken: it is broken=1
https://example.org/path?x=1#y http://localhost:8080/@scope/pkg
git@github.com:ada/project.git ssh://git@github.com/ada/project
https://docs.rs/regex/1.13.1/regex/struct.Regex.html
risk-based task-force disk-usage-of-the-whole-machine-2024
sk-learn sk-fading-circle-of-many-dots sk-cube-grid-of-nine-cubes-1
npm_config_registry=https://registry.npmjs.org/
npm_package_name hf_hub_download ghp_ github_pat_ AKIA glpat-
eyJhbGciOiJIUzI1NiJ9 is no token, and neither is eyJ.eyJ.eyJ
-----BEGIN CERTIFICATE-----
MIIDXTCCAkWgAwIBAgIJAJC1HiIAZAiUMA0GCSqGSIb3DQEBBQUAMEUxCzAJBgNV
-----END CERTIFICATE-----
secret::Key::new() Token::new(secret)
fn secret(key: &str) -> Secret { Secret::new(key) }
const TOKEN_LIMIT: usize = 4096; // tokens: 4096
for (token, password) in pairs { check(token, password)?; }
grün, 漢字, naïve — 🙂
"#;
