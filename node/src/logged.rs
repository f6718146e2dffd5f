//! What is logged, for tests.

/// The lines logged by `work`.
pub(crate) fn logged(work: impl FnOnce()) -> Vec<String> {
    let (sender, lines) = std::sync::mpsc::channel();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || Lines(sender.clone()))
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let text = String::from_utf8(lines.try_iter().flatten().collect()).unwrap();
    text.lines().map(str::to_owned).collect()
}

struct Lines(std::sync::mpsc::Sender<Vec<u8>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes.to_vec()).unwrap();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
