//! The data side: `pelton index`, `inspect`, `pack`, and `probe`.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use pelton_tools::data_tools::{
    self, ColumnFigures, DeviceProbe, FileFigures, IndexFigures, ProbeOptions, ProbePattern,
};
use pelton_train::{DataError, Output, path_text};

use super::blocks;
use crate::arguments::{IndexArguments, InspectArguments, PackArguments, ProbeArguments};
use crate::bytes::human;
use crate::output::{Failure, bytes_of, print_json, print_with, with_console};

/// Locates the records of files.
pub fn index(arguments: IndexArguments) -> Result<(), Failure> {
    let config = arguments.format.config(arguments.data);
    let figures = with_console(|context| data_tools::index(&config, context))?;
    if arguments.json {
        return print_json(&figures);
    }
    print_with(|out| {
        writeln!(out, "records            {}", figures.records)?;
        writeln!(out, "contents           {}", figures.contents)?;
        if figures.features > 0 {
            writeln!(out, "features           {}", figures.features)?;
            writeln!(out, "stored values      {}", figures.nonzeros)?;
        }
        print_columns(&figures.columns, out)?;
        let listed = labels(&figures);
        writeln!(out, "labels             {listed}")?;
        writeln!(out, "bytes              {}", human(figures.bytes))?;
        writeln!(
            out,
            "location table     {} by {}, {:.2} bytes a record",
            human(figures.index_bytes),
            figures.source,
            figures.bytes_per_record
        )?;
        writeln!(
            out,
            "located            in {:.3} s, {} a second",
            figures.scan_s,
            human(figures.scan_bytes_per_s as u64)
        )?;
        writeln!(
            out,
            "one random access  reads {:.0} bytes on average, {} at most, rounded out to the device's unit",
            figures.mean_record_bytes, figures.longest_record_bytes
        )?;
        print_files(&figures.files, out)
    })
}

/// The columns of a table, a line each: features, name, and how it would be read.
fn print_columns(columns: &[ColumnFigures], out: &mut impl Write) -> io::Result<()> {
    const MOST: usize = 50;
    if columns.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "columns            {}, as `pelton train linear` would read them",
        columns.len()
    )?;
    let shown = &columns[..columns.len().min(MOST)];
    let width = shown.iter().map(|column| column.name.chars().count()).max();
    let width = width.unwrap_or(0).min(40);
    for column in shown {
        let features = column
            .features
            .map_or("any number of".to_string(), |n| n.to_string());
        let features = match column.features {
            Some(1) => "1 feature".to_string(),
            _ => format!("{features} features"),
        };
        let missing = match column.missing {
            None | Some(0) => String::new(),
            Some(missing) => format!(" ({missing} missing)"),
        };
        writeln!(
            out,
            "    {:width$}  {features:<15}  {}{missing}",
            column.name, column.read_as
        )?;
    }
    if columns.len() > MOST {
        writeln!(
            out,
            "    and {} more (--json lists them)",
            columns.len() - MOST
        )?;
    }
    Ok(())
}

/// The first labels, by name if they have names, and the number of others.
fn labels(figures: &IndexFigures) -> String {
    const MOST: usize = 100;
    let mut text = if figures.label_names.is_empty() {
        format!("{:?}", &figures.labels[..figures.labels.len().min(MOST)])
    } else {
        let names: Vec<&str> = figures
            .label_names
            .iter()
            .take(MOST)
            .map(String::as_str)
            .collect();
        names.join(", ")
    };
    let more = figures.classes.saturating_sub(MOST as u64);
    if more > 0 {
        text += &format!(" and {more} more");
        if figures.labels_left_out == 0 {
            text += " (--json lists them)";
        }
    }
    text
}

/// Prints how the records of each file are located, and the cost of one random access.
fn print_files(files: &[FileFigures], out: &mut impl Write) -> io::Result<()> {
    const MOST: usize = 20;
    for file in files.iter().take(MOST) {
        writeln!(
            out,
            "{}: {}, {} records",
            file.path, file.format, file.records
        )?;
        writeln!(out, "    found {}", file.located)?;
        let opens = match file.access_opens {
            0 => String::new(),
            _ => ", and opens a file".to_string(),
        };
        let decodes = match file.access_decodes {
            0.0 => String::new(),
            bytes => format!(", and decodes {bytes:.0} bytes unless they are in memory"),
        };
        writeln!(
            out,
            "    one random access uses {:.0} bytes and touches {:.1} pages of 4096{opens}{decodes}",
            file.access_bytes, file.access_pages
        )?;
    }
    if files.len() > MOST {
        writeln!(out, "... and {} more files", files.len() - MOST)?;
    }
    Ok(())
}

/// Shows one record.
pub fn inspect(arguments: InspectArguments) -> Result<(), Failure> {
    let config = arguments.format.config(arguments.data);
    let inputs = config.inputs([]);
    let open = |path: &PathBuf| Output::open(path, &inputs, arguments.overwrite);
    let out = arguments.out.as_ref().map(open).transpose();
    let out = out.map_err(DataError::from)?;
    let view = with_console(|context| data_tools::inspect(&config, arguments.id, context))?;
    if let Some(out) = out {
        data_tools::write_picture(&view, out)?;
    }
    if arguments.json {
        return print_json(&view);
    }
    let coloured = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    print_with(|out| {
        writeln!(
            out,
            "record {} of {}: {} bytes at byte {}",
            view.id, view.file, view.length, view.offset
        )?;
        let about = match view.contents.as_str() {
            "features" => &view.indices,
            contents => contents,
        };
        match &view.label_name {
            Some(name) => writeln!(out, "label {name} ({}); {about}", view.label)?,
            None => writeln!(out, "label {}; {about}", view.label)?,
        }
        for member in &view.members {
            let text = member.text.as_deref().unwrap_or_default();
            let first = text.lines().next().unwrap_or_default();
            writeln!(
                out,
                "{:>10} bytes  .{}  {first}",
                member.length, member.extension
            )?;
        }
        if let Some([width, height]) = view.picture_size {
            writeln!(out, "picture of {width} × {height}")?;
        }
        if let Some(picture) = &view.picture {
            blocks::draw(picture, coloured, out)?;
        }
        if let Some(fault) = &view.picture_fault {
            writeln!(out, "its picture cannot be decoded: {fault}")?;
        }
        const MOST: usize = 64;
        for (index, value) in view.entries.iter().take(MOST) {
            writeln!(out, "{index:>10}  {value}")?;
        }
        if view.entries.len() > MOST {
            writeln!(out, "       ... {} more", view.entries.len() - MOST)?;
        }
        if let Some(text) = &view.text {
            const MOST_CHARACTERS: usize = 400;
            let short: String = text.chars().take(MOST_CHARACTERS).collect();
            let dots = if short.len() < text.len() { " ..." } else { "" };
            writeln!(out, "text: {short}{dots}")?;
        }
        Ok(())
    })
}

/// Writes data as packed rows.
pub fn pack(arguments: PackArguments) -> Result<(), Failure> {
    let config = arguments.format.config(arguments.data);
    let summary = with_console(|context| {
        data_tools::pack(
            &config,
            &arguments.out,
            arguments.delta,
            arguments.overwrite,
            context,
        )
    })?;
    let bytes = std::fs::metadata(&arguments.out).map_or(0, |file| file.len());
    if arguments.json {
        return print_json(&serde_json::json!({
            "records": summary.records,
            "bytes": bytes,
            "out": path_text(&arguments.out),
        }));
    }
    print_with(|out| {
        writeln!(
            out,
            "{} records, {} in {}",
            summary.records,
            human(bytes),
            arguments.out.display()
        )?;
        Ok(())
    })
}

/// Measures the device under a folder.
pub fn probe(arguments: ProbeArguments) -> Result<(), Failure> {
    let options = ProbeOptions {
        file_bytes: bytes_of(arguments.size, "--size")?,
        seconds_per_point: arguments.seconds,
    };
    let probe =
        with_console(|context| data_tools::probe(&arguments.folder, options, context.interrupt))?;
    if arguments.json {
        return print_json(&probe);
    }
    print_with(|out| print_probe(&probe, out))
}

fn print_probe(probe: &DeviceProbe, out: &mut impl Write) -> io::Result<()> {
    if let Some(note) = &probe.note {
        writeln!(out, "{note}")?;
    }
    writeln!(
        out,
        "reads a second by block size (rows) and reads in flight (columns)"
    )?;
    for (pattern, name) in [
        (ProbePattern::Sequential, "sequential"),
        (ProbePattern::Random, "random"),
    ] {
        let mut blocks: Vec<u64> = probe.points.iter().map(|point| point.block_bytes).collect();
        let mut depths: Vec<u32> = probe.points.iter().map(|point| point.depth).collect();
        blocks.sort_unstable();
        blocks.dedup();
        depths.sort_unstable();
        depths.dedup();
        write!(out, "{name:>12}")?;
        for depth in &depths {
            write!(out, "{depth:>10}")?;
        }
        writeln!(out, "      best")?;
        for block in blocks {
            write!(out, "{:>12}", human(block))?;
            for &depth in &depths {
                match probe.point(pattern, block, depth) {
                    Some(point) => write!(out, "{:>10.0}", point.iops)?,
                    None => write!(out, "{:>10}", "-")?,
                }
            }
            let best = probe.best(pattern, block).map_or(0.0, |p| p.bytes_per_s);
            writeln!(out, "  {}/s", human(best as u64))?;
        }
    }
    let model = probe.device_model("this device");
    writeln!(out)?;
    writeln!(
        out,
        "LIRS Table 2                      sequential read/write   random read/write (4 KiB IOPS)"
    )?;
    writeln!(
        out,
        "  WD 10EZEX (HDD)                       40000/36000             600/300"
    )?;
    writeln!(
        out,
        "  Intel SSD 750                       563000/230000       430000/230000"
    )?;
    writeln!(
        out,
        "  Intel Optane SSD DC P4800X          614000/512000       550000/500000"
    )?;
    writeln!(
        out,
        "  this device, measured         {:>13.0}/{:<13.0} {:>7.0}/{:.0}",
        model.sequential_read_iops,
        model.sequential_write_iops,
        model.random_read_iops,
        model.random_write_iops
    )
}
