//! Sample output of processes.

use std::io::Write;

use serde_json::json;

/// A deterministic pseudo-random sequence.
struct XorshiftNumbers(u64);

impl XorshiftNumbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Lines of at least so many bytes, truncated.
fn filled(bytes: usize, mut line: impl FnMut(&mut XorshiftNumbers, &mut Vec<u8>)) -> Vec<u8> {
    let mut numbers = XorshiftNumbers(0x9e37_79b9_7f4a_7c15);
    let mut text = Vec::with_capacity(bytes + 4096);
    while text.len() < bytes {
        line(&mut numbers, &mut text);
    }
    text.truncate(bytes);
    text
}

pub(crate) fn log_lines(bytes: usize) -> Vec<u8> {
    filled(bytes, log_line)
}

fn log_line(numbers: &mut XorshiftNumbers, text: &mut Vec<u8>) {
    let number = numbers.next();
    let (second, id) = (number % 60, number >> 32);
    match number % 5 {
        0 => writeln!(text, "2026-01-01T12:00:{second:02}Z  INFO server::http: GET /api/v1/items/{id} 200 in {second} ms"),
        1 => writeln!(text, "   Compiling regex-automata v0.4.{second} (/home/ada/.cargo/registry/src/regex)"),
        2 => writeln!(text, "test store::journal::tests::events_of_{id}_come_back_in_order ... ok"),
        3 => writeln!(text, "commit {number:016x}{number:016x}{id:08x}: see https://example.org/wiki/{id}?page={second}"),
        _ => writeln!(text, "warning: unused variable `item_{id}`; it was read {second} times, but never written to since"),
    }
    .unwrap();
}

pub(crate) fn json_lines(bytes: usize) -> Vec<u8> {
    filled(bytes, |numbers, text| {
        let number = numbers.next();
        let words = "I will read the file first, and then \"change\" what is wrong in it.\n\
            fn main() {\n    println!(\"{}\", parse(&text)?);\n}\n";
        let line = json!({
            "type": "assistant",
            "message": {
                "id": format!("msg_{number:016x}"), "role": "assistant",
                "content": [{"type": "text", "text": words.repeat(1 + usize::from(number.to_le_bytes()[0] % 4))}],
                "usage": {"input_tokens": number % 10_000, "output_tokens": number % 500},
            },
            "session_id": format!("{number:08x}-e29b-41d4-a716-{number:012x}"),
        });
        writeln!(text, "{line}").unwrap();
    })
}

pub(crate) fn with_secrets(bytes: usize) -> Vec<u8> {
    let mut next = 0;
    filled(bytes, |numbers, text| {
        log_line(numbers, text);
        if text.len() < next {
            return;
        }
        next = text.len() + 1000;
        match numbers.next() % 4 {
            0 => writeln!(text, "using sk-proj-abcdefghij{:016x} for now", numbers.next()),
            1 => writeln!(text, "DATABASE_PASSWORD=hunter{}", numbers.next() % 100),
            2 => writeln!(
                text,
                "curl -H 'Authorization: Bearer {:016x}' example.org",
                numbers.next()
            ),
            _ => writeln!(text, "connected with a-password-of-the-database"),
        }
        .unwrap();
    })
}

pub(crate) fn endless_line(bytes: usize) -> Vec<u8> {
    let mut text = log_lines(bytes);
    text.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
    text
}

pub(crate) fn random_bytes(bytes: usize) -> Vec<u8> {
    filled(bytes, |numbers, text| text.extend(numbers.next().to_le_bytes()))
}
