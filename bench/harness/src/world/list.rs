//! The programs, each with a job that uses memory as such programs do.

use Work::{Job, Script, Server};

/// A program of a distribution, and what is done with it.
pub struct Program {
    /// What tables call it.
    pub name: &'static str,
    /// Commands that have to be there, and the packages of Debian that have them.
    pub needs: &'static [(&'static str, &'static str)],
    /// Modules of Python that have to be there.
    pub modules: &'static [&'static str],
    /// Files of the folder that it runs in.
    pub files: &'static [(&'static str, &'static str)],
    /// A shell script on the system's allocator that runs before it in the folder.
    pub prepare: &'static str,
    /// The program and its arguments: words with a blank in between.
    pub command: &'static str,
    /// How it works, and how it ends.
    pub work: Work,
    /// A shell script on the system's allocator that prints what it has made; without one, its output is what it prints.
    pub result: &'static str,
    /// Whether it refuses to be run by root.
    pub never_root: bool,
}

/// How a program works, and how it ends. Its output must be the same on all allocators.
#[derive(Clone, Copy)]
pub enum Work {
    /// It ends when its work is done.
    Job,
    /// It prints `ready` in a line of its own when its work is done, rests, and ends at the end of its input.
    Script,
    /// A server. Its output is that of its client.
    Server {
        /// A shell script on the system's allocator that succeeds when the server answers.
        answers: &'static str,
        /// The client: another one.
        client: &'static str,
        /// The worker's word for how it is ended.
        end: &'static str,
    },
}

/// A port of the machine that is free, an absolute path of the folder, the interpreter of Python.
pub const PORT: &str = "@PORT@";
pub const FOLDER: &str = "@FOLDER@";
pub const PYTHON: &str = "@PYTHON@";

macro_rules! job {
    ($name:literal) => {
        ($name, include_str!(concat!("jobs/", $name)))
    };
}

const NOTHING: Program = Program {
    name: "",
    needs: &[],
    modules: &[],
    files: &[],
    prepare: "true",
    command: "",
    work: Job,
    result: "",
    never_root: false,
};

/// All of them, in the order in which they are run.
pub const ALL: &[Program] = &[
    Program {
        name: "PostgreSQL",
        needs: &[
            ("initdb", "postgresql"),
            ("postgres", "postgresql"),
            ("pgbench", "postgresql"),
            ("psql", "postgresql-client"),
        ],
        files: &[job!("postgres.sh")],
        prepare: "initdb -D data -U spandrel -A trust --no-sync -E UTF8 --locale=C >/dev/null",
        command: "postgres -D data -k @FOLDER@ -c listen_addresses= -c fsync=off -c shared_buffers=32MB -c dynamic_shared_memory_type=mmap \
                  -c autovacuum=off -c jit=off",
        work: Server {
            answers: "psql -h $PWD -U spandrel -d postgres -qc 'SELECT 1'",
            client: "sh postgres.sh",
            end: "interrupt",
        },
        never_root: true,
        ..NOTHING
    },
    Program {
        name: "MariaDB",
        needs: &[
            ("mariadbd", "mariadb-server"),
            ("mariadb-install-db", "mariadb-server"),
            ("mariadb-slap", "mariadb-client"),
        ],
        files: &[job!("mariadb.sh")],
        prepare: "mariadb-install-db --no-defaults --datadir=$PWD/data --auth-root-authentication-method=normal >/dev/null",
        command: "mariadbd --no-defaults --datadir=@FOLDER@/data --socket=@FOLDER@/mariadb.sock --skip-networking \
                  --innodb-flush-log-at-trx-commit=0 --innodb-flush-method=nosync --skip-log-bin --group-concat-max-len=10000000",
        work: Server {
            answers: "mariadb --socket=$PWD/mariadb.sock -u root -e 'SELECT 1'",
            client: "sh mariadb.sh",
            end: "stop",
        },
        never_root: true,
        ..NOTHING
    },
    Program {
        name: "nginx",
        needs: &[("nginx", "nginx-light"), ("ab", "apache2-utils"), ("curl", "curl")],
        files: &[job!("nginx.conf")],
        prepare: "mkdir www && seq 1 300 > www/small && seq 1 30000 > www/large",
        command: "nginx -e @FOLDER@/error.log -p @FOLDER@ -c @FOLDER@/nginx.conf",
        work: Server {
            answers: "curl -sf http://127.0.0.1:@PORT@/small",
            client: "for path in small large relay/small relay/large; do \
                     ab -q -c 40 -n 6000 -k http://127.0.0.1:@PORT@/$path >/dev/null 2>&1; \
                     ab -q -c 20 -n 1200 -H 'Accept-Encoding: gzip' http://127.0.0.1:@PORT@/$path >/dev/null 2>&1; \
                     curl -s --compressed http://127.0.0.1:@PORT@/$path | cksum; done",
            end: "stop",
        },
        ..NOTHING
    },
    Program {
        name: "memcached",
        needs: &[("memcached", "memcached"), ("python3", "python3")],
        files: &[job!("memcached.py")],
        command: "memcached -s memcached.sock -m 1024 -t 2",
        work: Server {
            answers: "test -S memcached.sock",
            client: "python3 -I memcached.py",
            end: "stop",
        },
        never_root: true,
        ..NOTHING
    },
    Program {
        name: "php",
        needs: &[("php", "php-cli php-xml php-sqlite3 php-mbstring")],
        files: &[job!("job.php")],
        command: "php job.php",
        work: Script,
        ..NOTHING
    },
    Program {
        name: "ruby",
        needs: &[("ruby", "ruby")],
        files: &[job!("job.rb")],
        command: "ruby job.rb",
        work: Script,
        ..NOTHING
    },
    Program {
        name: "R",
        needs: &[("Rscript", "r-base-core")],
        files: &[job!("job.R")],
        command: "Rscript --vanilla job.R",
        work: Script,
        ..NOTHING
    },
    Program {
        name: "octave",
        needs: &[("octave-cli", "octave")],
        files: &[job!("job.m")],
        command: "octave-cli --norc job.m",
        work: Script,
        ..NOTHING
    },
    Program {
        name: "node",
        needs: &[("node", "nodejs")],
        files: &[job!("job.js")],
        command: "node job.js",
        work: Script,
        ..NOTHING
    },
    Program {
        name: "java",
        needs: &[("java", "default-jre-headless"), ("javac", "default-jdk-headless")],
        files: &[job!("Job.java")],
        prepare: "javac Job.java",
        command: "java -Xmx1g -cp . Job",
        work: Script,
        ..NOTHING
    },
    Program {
        name: "numpy",
        modules: &["numpy"],
        files: &[job!("numpy.py")],
        command: "@PYTHON@ -I numpy.py",
        work: Script,
        ..NOTHING
    },
    Program {
        name: "pandas",
        modules: &["pandas"],
        files: &[job!("pandas.py")],
        command: "@PYTHON@ -I pandas.py",
        work: Script,
        ..NOTHING
    },
    Program {
        name: "polars",
        modules: &["polars"],
        files: &[job!("polars.py")],
        command: "@PYTHON@ -I polars.py",
        work: Script,
        ..NOTHING
    },
    Program {
        name: "duckdb",
        modules: &["duckdb"],
        files: &[job!("duckdb.py")],
        command: "@PYTHON@ -I duckdb.py",
        work: Script,
        ..NOTHING
    },
    Program {
        name: "ffmpeg",
        needs: &[("ffmpeg", "ffmpeg")],
        command: "ffmpeg -v error -f lavfi -i testsrc2=size=640x360:rate=30:duration=8 -vf hue=s=0.5,scale=480:270 \
                  -c:v libx264 -preset fast -threads 2 -f framemd5 -",
        ..NOTHING
    },
    Program {
        name: "ImageMagick",
        needs: &[("convert", "imagemagick")],
        command: "convert -size 1200x900 -seed 7 plasma:red-blue -resize 800x600 -blur 0x3 -rotate 20 -sharpen 0x1 \
                  -edge 1 -colors 64 -format %#\\n info:",
        ..NOTHING
    },
    Program {
        name: "LibreOffice",
        needs: &[("soffice", "libreoffice-calc-nogui")],
        prepare: "seq 1 40000 | awk '{print $1 \",\" ($1 * 7919) % 104729 \",row \" $1 \",=A\" NR \"*2+B\" NR}' > table.csv",
        command: "soffice -env:UserInstallation=file://@FOLDER@/profile --headless --convert-to fods table.csv",
        result: "grep -o 'office:value=\"[^\"]*\"' table.fods | cksum",
        ..NOTHING
    },
    Program {
        name: "chromium",
        needs: &[("chromium", "chromium")],
        files: &[job!("page.html")],
        command: "chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                  --user-data-dir=@FOLDER@/profile --virtual-time-budget=20000 --dump-dom file://@FOLDER@/page.html",
        ..NOTHING
    },
];
