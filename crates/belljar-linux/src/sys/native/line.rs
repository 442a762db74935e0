//! What the zygote tells the engine: a short line of JSON.

pub struct Line {
    bytes: [u8; 192],
    size: usize,
}

impl Line {
    pub fn new(text: &str) -> Self {
        let mut line = Self {
            bytes: [0; 192],
            size: 0,
        };
        line.text(text);
        line
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.push(text.as_bytes())
    }

    pub fn number(&mut self, mut number: u64) -> &mut Self {
        let mut digits = [b'0'; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 || first == 0 {
                return self.push(digits.get(first..).unwrap_or(&[]));
            }
        }
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.size).unwrap_or(&[])
    }

    /// What does not fit is left out.
    fn push(&mut self, bytes: &[u8]) -> &mut Self {
        for (place, byte) in self.bytes.iter_mut().skip(self.size).zip(bytes) {
            *place = *byte;
            self.size += 1;
        }
        self
    }
}
