//! Exports, crashes of the process, power cuts, and imports with or without a device.

use super::life::Life;
use super::survival::Health;
use super::written::said;
use sim::CrashChoice;

impl Life {
    /// Exports or crashes, then imports, with or without a device.
    pub fn reopen(&mut self) -> Result<(), String> {
        let crashes = self.below(2) == 0;
        let mut promised = None;
        if crashes {
            said("sync", self.pool()?.sync())?;
            promised = Some(self.written.ages());
            self.write()?;
        }
        let absent = self.absent()?;
        let pool = self.pool.take().ok_or("the pool is closed")?;
        if crashes {
            self.report.count("crashes");
            drop(pool);
            self.inline.run_ready();
        } else {
            self.report.count("exports");
            said("export", pool.export())?;
        }
        self.return_with(promised, absent)
    }

    /// Cuts the power at some moment of something: of what no flush covers, some is lost and some torn.
    pub fn power_cut(&mut self) -> Result<(), String> {
        // A device that could not flush may lack what nobody knows of, if the power goes off before that is noted.
        if self.is_faulty {
            return self.reopen();
        }
        said("sync", self.pool()?.sync())?;
        let promised = Some(self.written.ages());
        self.inline.run_ready();
        self.sim.start_recording();
        let done = self.go_on();
        let recording = self.sim.take_recording();
        done?;
        let absent = self.absent()?;
        let cuts = recording.cuts();
        let cut = cuts[self.below(cuts.len() as u64) as usize];
        let choice = match self.below(4) {
            0 => CrashChoice::Lost,
            1 => CrashChoice::Applied,
            _ => CrashChoice::Random(self.below(u64::MAX)),
        };
        let mut walker = recording.walk();
        walker.advance(cut);
        drop(self.pool.take());
        self.inline.run_ready();
        for (device, image) in self.devices.iter().zip(walker.images(choice)) {
            device.tamper(|old| *old = image);
        }
        self.report.count("power cuts");
        self.return_with(promised, absent)
    }

    /// Does what is under way when the power goes off.
    fn go_on(&mut self) -> Result<(), String> {
        match self.below(12) {
            0 => self.take_out(),
            1 => self.bring_back(),
            2 | 3 => self.attach(),
            4 => self.detach(),
            5 | 6 => self.scan(),
            7 => self.spare_in(),
            8 => self.spare_out(),
            9 => self.sweep(),
            _ => {
                self.write()?;
                said("sync", self.pool()?.sync())
            }
        }
    }

    /// Number of a device that is not there at the next import.
    fn absent(&mut self) -> Result<Option<usize>, String> {
        Ok(if self.below(3) == 0 { self.hit(Health::Lacking)?.map(|(device, _)| device) } else { None })
    }

    /// Imports the pool. What was written after the promise is there as a whole, or not at all.
    fn return_with(&mut self, promised: Option<Vec<u64>>, absent: Option<usize>) -> Result<(), String> {
        let there: Vec<usize> = (0..self.devices.len()).filter(|index| Some(*index) != absent).collect();
        self.pool = Some(said("import", self.import(&there, false))?);
        if let Some(promised) = promised
            && self.check("the last write").is_err()
        {
            self.written.go_back(promised);
        }
        self.check("after import")
    }
}
